// apiary/tests/abort/inner_transaction.cpp - a transaction ends before the one inside it.
// SPDX-License-Identifier: MIT
// EXPECT: apiary: open_ && log_\.open_ == depth_ does not hold
#include <apiary/alloc/journal.h>

int main() {
  apiary::journal log;
  apiary::transaction outer(log);
  const apiary::transaction inner(log);
  outer.commit();
  return 0;
}
