#include "proto/admin/event_feed.h"

#include <algorithm>
#include <utility>

namespace macaw::admin {

void EventFeed::StartAfter(uint64_t lines) {
  absl::MutexLock lock(&mutex_);
  first_ = lines + 1;
}

void EventFeed::Append(std::string line) {
  {
    absl::MutexLock lock(&mutex_);
    lines_.push_back(std::move(line));
    if (lines_.size() > most_) {
      lines_.pop_front();
      ++first_;
    }
    if (waiters_.empty()) return;
  }
  Wake();
}

void EventFeed::Close() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }
  Wake();
}

EventFeed::Batch EventFeed::Read(uint64_t from, size_t most) const {
  absl::MutexLock lock(&mutex_);
  Batch batch{.first = from == 0 ? Next() : std::max(from, first_)};
  for (uint64_t i = batch.first; i < Next() && batch.lines.size() < most; ++i)
    batch.lines.push_back(lines_[i - first_]);
  batch.closed = closed_ && batch.first + batch.lines.size() >= Next();
  return batch;
}

uint64_t EventFeed::next() const {
  absl::MutexLock lock(&mutex_);
  return Next();
}

uint64_t EventFeed::WhenThereIs(uint64_t from, std::function<void()> news) {
  uint64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    number = ++last_waiter_;
    if (from >= Next() && !closed_) {
      waiters_[number] = {.from = from, .news = std::move(news)};
      return number;
    }
  }
  news();
  return number;
}

void EventFeed::Forget(uint64_t waiter) {
  absl::MutexLock lock(&mutex_);
  waiters_.erase(waiter);
}

void EventFeed::Wake() {
  std::vector<std::function<void()>> due;
  {
    absl::MutexLock lock(&mutex_);
    for (auto it = waiters_.begin(); it != waiters_.end();) {
      if (it->second.from >= Next() && !closed_) {
        ++it;
        continue;
      }
      due.push_back(std::move(it->second.news));
      it = waiters_.erase(it);
    }
  }
  for (const std::function<void()>& news : due) news();
}

}  // namespace macaw::admin
