// apiary/apiary.h - the whole library.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/alloc/fraction_pool.h>
#include <apiary/core/bitset.h>
#include <apiary/core/config.h>
#include <apiary/core/dense_map.h>
#include <apiary/core/fast_div.h>
#include <apiary/core/ids.h>
#include <apiary/core/rng.h>
#include <apiary/core/status.h>
#include <apiary/model/node_table.h>
#include <apiary/model/plan.h>
#include <apiary/model/request.h>
#include <apiary/model/resources.h>
#include <apiary/model/tree.h>
#include <apiary/model/uniform_tree.h>
