#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/engine/evaluation_board.h"

// Boards of round 3 over five clients, and what workers take from them and answer.
namespace macaw::server::fixtures {

inline TimePoint At(double seconds) { return TimePoint(FromSeconds(seconds)); }
inline constexpr WorkerId kAnna(1), kBert(2);

inline const std::vector<uint32_t> kTrainRows = {3, 0, 950, 1, 1};

// One node has the clients and the central test set.
inline Roster Everything() {
  Roster roster;
  roster.Add({.name = "w", .clients = kTrainRows.size(), .central_test_rows = 1000},
             {.rows = kTrainRows});
  roster.Begin();
  return roster;
}
inline constexpr EvaluationBoard::Queue kCentral = EvaluationBoard::Central();
inline constexpr EvaluationBoard::Queue kClients = EvaluationBoard::Of(HoldingId(0));

inline EvaluationBoard Board() {
  return EvaluationBoard(Round(3), {}, {.chunk = 400, .central = true}, false, Everything());
}

inline std::vector<fleet::EvaluationTask> Take(EvaluationBoard& board, WorkerId worker,
                                               EvaluationBoard::Queue queue, size_t count,
                                               double expires, FenceSource& fences) {
  std::vector<fleet::EvaluationTask> tasks;
  board.Take(worker, queue, count, At(expires), fences, tasks);
  return tasks;
}

inline fleet::EvaluationResult Result(const fleet::EvaluationTask& task) {
  return {.task = task,
          .round = Round(3),
          .sums = {static_cast<double>(task.end - task.begin), 0.1 * task.begin}};
}

}  // namespace macaw::server::fixtures
