// Probability distributions: samples, densities and divergences, batched and differentiable, as in the Python package.
//
//   using namespace mica::distributions;
//   Normal prior(0.0, 1.0), posterior(loc, scale);
//   Tensor z = posterior.rsample({100});                  // with a gradient by loc and scale
//   Tensor loss = kl_divergence(posterior, prior).sum() - Categorical({.logits = x}).log_prob(action).mean();
//
// Names, shapes, errors and the streams of random numbers are those of Python: one seed gives one sample. What Python
// spells as an attribute is a call here (d.mean(), d.loc(), constraints::positive()).
//
// The code is in a library of its own: link mica::distributions (libmica_distributions.so). mica/mica.h does not
// include this header, and a Python wheel, which has distributions in Python, does not carry the library.
#pragma once

#include "mica/distributions/compound.h"
#include "mica/distributions/constraints.h"
#include "mica/distributions/continuous.h"
#include "mica/distributions/discrete.h"
#include "mica/distributions/distribution.h"
#include "mica/distributions/kl.h"
#include "mica/distributions/multivariate.h"
#include "mica/distributions/transformed.h"
#include "mica/distributions/transforms.h"
