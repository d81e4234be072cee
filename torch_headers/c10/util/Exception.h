#pragma once

#include "torch/check.h"
