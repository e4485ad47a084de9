#include "worker/work_queue.h"

#include <algorithm>
#include <iterator>

namespace macaw::worker {

std::vector<WorkItem> WorkQueue::TakeTurn(size_t idle_lanes, size_t most) {
  const auto trains = [](const WorkItem& item) { return std::holds_alternative<TrainItem>(item); };
  const size_t queued = std::ranges::find_if_not(items_, trains) - items_.begin();
  const size_t share = (queued + idle_lanes - 1) / idle_lanes;
  size_t count = std::max<size_t>(1, std::min(share, most));  // 1: an evaluation
  // Clients of one turn train from one model.
  for (size_t i = 1; i < count; ++i) {
    if (std::get<TrainItem>(items_[i]).phase != std::get<TrainItem>(items_[0]).phase) count = i;
  }
  if (const auto* train = std::get_if<TrainItem>(&items_[0]);
      train != nullptr && train->phase->arrives)
    count = 1;
  const auto end = items_.begin() + static_cast<ptrdiff_t>(count);
  std::vector<WorkItem> turn(std::make_move_iterator(items_.begin()), std::make_move_iterator(end));
  items_.erase(items_.begin(), end);
  return turn;
}

bool WorkQueue::Remove(const Attempt& attempt) {
  return std::erase_if(items_, [&](const WorkItem& item) {
           const auto* train = std::get_if<TrainItem>(&item);
           return train != nullptr && train->client.assignment.fence == attempt.fence;
         }) > 0;
}

Unbegun WorkQueue::TakeAll() {
  Unbegun taken;
  for (const WorkItem& item : std::exchange(items_, {})) {
    if (const auto* train = std::get_if<TrainItem>(&item)) {
      taken.attempts.push_back(train->attempt());
    } else {
      taken.tasks.push_back(std::get<EvaluateItem>(item).task.fence);
    }
  }
  return taken;
}

std::vector<Attempt> WorkQueue::Clients() const {
  std::vector<Attempt> clients;
  for (const WorkItem& item : items_) {
    if (const auto* train = std::get_if<TrainItem>(&item)) clients.push_back(train->attempt());
  }
  return clients;
}

}  // namespace macaw::worker
