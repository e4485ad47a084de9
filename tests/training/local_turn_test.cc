// What the plan says of a client's batches, beside the batches themselves.
#include <gtest/gtest.h>

#include <cstdint>

#include "plan/local_steps.h"
#include "training/batch_order.h"

namespace macaw::training {
namespace {

TEST(RowsPassed, IsTheRowsOfAllBatches) {
  for (uint64_t rows = 0; rows <= 14; ++rows) {
    for (const uint32_t batch : {0U, 1U, 2U, 4U, 5U, 20U}) {
      for (const uint32_t steps : {0U, 1U, 2U, 5U, 6U, 13U}) {
        for (const bool drop_last : {false, true}) {
          for (const bool joins : {false, true}) {
            const LocalTurn turn = {
                .local = {.epochs = 3, .steps = steps, .batch_size = batch, .drop_last = drop_last},
                .rows = rows,
                .joins = joins};
            BatchOrder order;
            order.Start({.seed = 1}, 0, rows, turn.local,
                        joins ? BatchOrder::Single::kJoin : BatchOrder::Single::kKeep);
            uint64_t passed = 0;
            for (auto next = order.Next(); !next.empty(); next = order.Next())
              passed += next.size();
            EXPECT_EQ(RowsPassed(turn), passed)
                << rows << " rows, batches of " << batch << ", " << steps << " steps, drop_last "
                << drop_last << ", joins " << joins;
            EXPECT_EQ(turn.steps(), order.steps());
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace macaw::training
