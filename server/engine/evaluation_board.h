#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/clock.h"
#include "core/ids.h"
#include "plan/run_plan.h"
#include "proto/fleet/messages.h"
#include "server/engine/attempt_table.h"
#include "server/engine/evaluation_cut.h"
#include "server/engine/evaluation_sums.h"
#include "server/engine/group_counts.h"
#include "server/engine/model_without.h"
#include "server/engine/roster.h"
#include "server/engine/version_index.h"
#include "training/api/class_counts.h"

namespace macaw::server {

// The evaluation of one model: who has which task (evaluation_cut.h), and what came of it. Only a
// node with a task's rows can do it, so a task waits in the queue of the central test set or in the
// queue of its client's holding. Tasks are leased, expire and are queued again like clients. A
// result counts once. Pure.
class EvaluationBoard {
 public:
  // A queue of tasks that need the same rows.
  using Queue = EvaluationQueue;
  static constexpr Queue Central() { return CentralQueue(); }
  static constexpr Queue Of(HoldingId holding) { return QueueOf(holding); }
  static constexpr HoldingId HoldingOf(Queue queue) { return HoldingId(queue.value - 1); }

  EvaluationBoard() = default;  // nothing to do
  static EvaluationBoard WithoutTasks(Round round) {
    EvaluationBoard board;
    board.round_ = round;
    return board;
  }
  // `personal_models`: the rule has models of clients' own beside the common one.
  // `seed`: the run's, for config.sample. `counts`: what is counted beside the sums.
  // `hostile`: no victims, so their test and validation rows are left out. Their training rows are
  // part of the objective. `groups`: of concept shift. `backdoor`: the central test rows are also
  // asked for with the trigger of attack.kind = "backdoor". `models`: of which a client chooses
  // one.
  EvaluationBoard(Round round, fleet::Blob model, const EvaluationConfig& config,
                  bool personal_models, const Roster& roster, uint64_t seed = 0,
                  const training::ClassCounts& counts = {}, const HostileClients& hostile = {},
                  uint32_t groups = 1, bool backdoor = false, uint32_t models = 1);

  // Adds the central test set with each of these models, if it is evaluated. Their tasks come last.
  void AddWithout(std::vector<ModelWithout> without, const EvaluationConfig& config);

  // A board that asks for the digests of a run's client states. There is one task for each range of
  // clients of a holding.
  static EvaluationBoard OfStates(Round round, const VersionIndex& versions, const Roster& roster);

  Round round() const { return round_; }
  const fleet::Blob& model() const { return model_; }
  bool done() const { return finished_ == slots_.size(); }
  uint64_t tasks() const { return slots_.size(); }
  uint64_t finished() const { return finished_; }
  uint64_t waiting() const { return slots_.size() - finished_ - by_fence_.size(); }
  absl::flat_hash_map<WorkerId, uint64_t> Held() const;  // tasks that each worker has leased
  uint64_t waiting(Queue queue) const {
    return queue.value < queues_.size() ? queues_[queue.value].waiting : 0;
  }

  // Leases up to `count` of the queue's tasks to the worker and appends them to `taken`; fewer, but
  // at least one, if their answers might be too large for a message. The tasks of a lease are of
  // one model, `of`: none are taken of another one.
  void Take(WorkerId worker, Queue queue, size_t count, TimePoint expires, FenceSource& fences,
            std::vector<fleet::EvaluationTask>& taken, size_t of = 0);
  // Of which model the queue's next task is; nullopt: none waits.
  std::optional<size_t> NextModel(Queue queue) const;
  // 0: of the round; n: the n-th of AddWithout.
  const fleet::Blob& model(size_t of) const { return of == 0 ? model_ : without_[of - 1].model; }
  // The task of this result, as it was leased to this worker. Null if the worker does not hold it,
  // or no longer holds it. The task fields of the result are only used to find the task.
  const fleet::EvaluationTask* Find(WorkerId worker, const fleet::EvaluationResult& result) const;
  // Returns false if the task is not current: it was leased to another worker since, or is done.
  // Sums beyond training::kLargestSum count as infinite.
  bool Complete(WorkerId worker, const fleet::EvaluationResult& result);
  // Tasks have numbers, in the order of the cut. Of a result's task, if it is current; of those
  // that wait in a queue; of those that are not finished, with the worker that has them leased.
  std::optional<uint64_t> NumberOf(WorkerId worker, const fleet::EvaluationResult& result) const;
  std::vector<uint64_t> Waiting(Queue queue) const;
  std::vector<std::pair<uint64_t, std::optional<WorkerId>>> Unfinished() const;
  const fleet::EvaluationTask& task(uint64_t number) const { return slots_[number].task; }
  Queue queue(uint64_t number) const { return slots_[number].queue; }
  // These tasks will not be done. Numbers of tasks that are finished or do not exist are ignored.
  void GiveUp(std::span<const uint64_t> tasks);
  // Queues the task of this result again, so that another worker can take it.
  void Refuse(WorkerId worker, const fleet::EvaluationResult& result);
  void Renew(WorkerId worker, TimePoint expires);
  size_t Expire(TimePoint now);  // returns the number of tasks that were queued again
  size_t DropWorker(WorkerId worker);
  size_t Release(WorkerId worker, std::span<const Fence> tasks);  // the worker returns them undone
  // When to call Expire: never later than the next expiry of a task, and seldom earlier.
  TimePoint NextExpiry() const { return by_fence_.empty() ? TimePoint::max() : next_expiry_; }

  EvaluationSums Report() const;  // once done()

 private:
  enum class State : uint8_t { kWaiting, kLeased, kDone, kGivenUp };
  struct Slot {
    fleet::EvaluationTask task;
    Queue queue;
    bool heldout = false;  // the client's columns are apart
    size_t of = 0;         // as in model()
    State state = State::kWaiting;
    WorkerId worker;
    TimePoint expires{};
    std::vector<double> sums, values;
    uint32_t choice = 0;
    std::optional<uint32_t> group;  // of the client
    Digest digest;
  };
  struct Line {
    std::vector<size_t> slots;  // in the order to hand them out
    size_t next = 0;            // no waiting slot lies before it
    uint64_t waiting = 0;
  };
  void Add(std::vector<CutTask> tasks);
  // The clients whose training rows are left out since they have no finite loss, by id.
  std::vector<ClientId> WithoutTrainingLoss() const;
  // What the tasks without a client say, of one kind of models.
  std::vector<EvaluationSums::ClientSums> ReportWithout(ModelWithout::Of of) const;
  uint64_t AnswerBytes(const Slot& slot) const;  // an estimate
  // Adds the result's counts to those of all rows, and keeps what they say of this task.
  void AddCounts(const fleet::EvaluationResult& result, Slot& slot);
  void Return(size_t slot);
  Slot* FindSlot(WorkerId worker, const fleet::EvaluationResult& result);

  Round round_{};
  fleet::Blob model_;
  std::vector<ModelWithout> without_;
  uint32_t groups_ = 1;        // of concept shift
  uint64_t central_rows_ = 0;  // as one group sees them
  training::ClassCounts classes_;
  std::array<std::vector<double>, kEvaluatedRows> counts_;  // whole numbers, so in any order
  GroupCounts group_counts_, model_counts_;
  uint32_t models_ = 1;
  uint64_t rows_of_a_client_ = 0;  // a guess of its test rows
  std::vector<Slot> slots_;
  std::vector<Line> queues_;
  absl::flat_hash_map<uint64_t, size_t> by_fence_;  // leased slots
  // The slots that each worker was given since it last held none: leased ones and done ones.
  absl::flat_hash_map<WorkerId, std::vector<size_t>> held_;
  TimePoint next_expiry_ = TimePoint::max();
  size_t finished_ = 0;
};

}  // namespace macaw::server
