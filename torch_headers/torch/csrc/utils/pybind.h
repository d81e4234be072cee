#pragma once

#include "torch/python.h"
