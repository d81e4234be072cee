#pragma once

#include "torch/dispatch.h"
