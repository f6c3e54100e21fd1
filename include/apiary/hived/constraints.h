// apiary/hived/constraints.h - topology constraints of gangs in HiveD.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/hived/detail/constraint_engine.h>
#include <apiary/hived/request.h>

// A program that sets gang_request::constraints includes this header, which compiles the search
// under constraints. Programs that link apiary::compiled need not include it.
// Example: examples/hived_constraints.cpp

#ifndef APIARY_COMPILED
#include <apiary/hived/detail/topology_fit_inl.h>
#endif
