#include "core/executor.h"

#include <pthread.h>

#include <utility>

namespace macaw {

Executor::Executor(std::string name, size_t threads) : name_(std::move(name)) {
  threads_.reserve(threads);
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

Executor::~Executor() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void Executor::Post(Task task) {
  absl::MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
}

void Executor::PostUrgent(Task task) {
  absl::MutexLock lock(&mutex_);
  urgent_.push_back(std::move(task));
}

void Executor::WaitIdle() {
  absl::MutexLock lock(&mutex_);
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return urgent_.empty() && tasks_.empty() && running_ == 0;
  };
  mutex_.Await(absl::Condition(&idle));
}

void Executor::Loop() {
  NameThisThread(name_);
  const auto ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return closing_ || !urgent_.empty() || !tasks_.empty();
  };
  while (true) {
    Task task;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&ready));
      std::deque<Task>& next = urgent_.empty() ? tasks_ : urgent_;
      if (next.empty()) return;
      task = std::move(next.front());
      next.pop_front();
      ++running_;
    }
    std::move(task)();
    task = nullptr;  // release what the task holds before it counts as done
    absl::MutexLock lock(&mutex_);
    --running_;
  }
}

void NameThisThread(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

}  // namespace macaw
