#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/buffer.h"
#include "device/device.h"
#include "training/api/trainer.h"
#include "training/batch_order.h"
#include "training/device/stage_work.h"
#include "training/device/upload.h"

namespace macaw::training {

// How a DeviceTrainer cuts its work up. The bits do not depend on it.
struct DeviceLimits {
  // Of a launch, by an estimate (training/device/work_estimate.h); a single pass may take longer.
  // Between two launches, batches are counted (TrainerSetup::work) and work that is given up ends.
  double launch_seconds = 1;
  // Of the host's memory, page-locked for what a launch reads; more is sent in pieces.
  size_t upload_bytes = size_t{1} << 30;
};

// Trains clients on a device (training/device/train_clients-inl.h): a stage of all turns is one
// copy in, launches with a block a client, one after the other, and copies of losses out. Ends and
// rows stay on the device; the ends of a stage are copied out when code on the host looks at one.
// Outcomes have the same bits for any number of turns at once, and on every device.
// One thread; several trainers share a device, each with a queue of its own.
//
// Where memory does not suffice, it takes half as many turns from then on, and trains those again
// for which it did not; a plan's `more` may then be asked again. Evaluate takes fewer rows at once
// likewise. kResourceExhausted: not even one client fits. kUnavailable: the device is lost, and so
// is the trainer. kCancelled: the work was given up (WorkCounter::GiveUp).
class DeviceTrainer final : public LocalTrainer {
 public:
  // Part of the numeric profile. Increase it with each change that gives other bits.
  static constexpr int kVersion = 2;

  // Whether it can do what the run asks of every stage. An error says briefly what it cannot do.
  static absl::Status Supports(const TrainerSetup& setup);
  // Whether it can carry out a stage: it has no hooks.
  static absl::Status Supports(const Stage& stage);

  // `device` must outlive it, and know the kernel kTrainClients.
  static absl::StatusOr<std::unique_ptr<DeviceTrainer>> Make(const TrainerSetup& setup,
                                                             device::Device& device,
                                                             const DeviceLimits& limits = {});

  TurnOutcome Run(const LocalPlan& plan, const ClientTask& task) override;
  size_t turns_at_once() const override { return turns_at_once_; }
  std::vector<TurnOutcome> RunMany(std::span<const Turn> turns) override;
  std::optional<DeviceSeat> device_seat() const override {
    return DeviceSeat{&device_, queue_.get()};
  }
  absl::StatusOr<MetricSums> Evaluate(ConstVectorView model, const data::Rows& rows, uint64_t begin,
                                      uint64_t end, uint32_t batch) override;
  std::string name() const override { return run_.setup.backend.name; }

 private:
  // What belongs to a stage and stays: what its launches read, and its ends, sums and cursors, one
  // after the other. On the host there is room for all but the ends, and for those once they are
  // asked for.
  struct Room final : LeftOnDevice {
    Room(device::Device& of, device::Queue& with) : device(of), queue(with) {}
    absl::Status Fetch() override;
    const std::byte* on_host() const override { return fetched; }

    device::Device& device;
    device::Queue& queue;
    device::Memory upload, results, results_host, ends_host;
    size_t ends_bytes = 0;
    AlignedBuffer ends_pageable;         // where none can be page-locked
    const std::byte* fetched = nullptr;  // the ends on the host
  };

  DeviceTrainer(ondevice::RunParts run, device::Device& device,
                std::unique_ptr<device::Queue> queue, const DeviceLimits& limits);

  absl::Status SendModel();
  void ChooseTurns(uint64_t free);
  // How many of the first turns are taken: their rows must fit, too.
  size_t Together(std::span<const Turn> turns) const;
  // How many pieces of rows Evaluate rates at once: their memory must fit, too.
  size_t RatedTogether(uint32_t batch) const;
  // Whether `count` of something are tried again for which there was no memory: half as many at
  // once from now on. A single one is tried a second time, with what was kept given back. `again`
  // is that of the loop: false at first.
  static bool TakesFewer(const char* what, size_t count, const absl::Status& why, size_t& at_once,
                         bool& again);
  absl::Status RunTogether(std::vector<ondevice::ClientTurn>& turns);
  // The turns' next stages, of those that have one.
  std::vector<ondevice::StageWork> NextStages(std::vector<ondevice::ClientTurn>& turns);
  // Carries out the works side by side, in passes of at most `most_rows`. Works with an end have it
  // in their outcomes, and all have their sums.
  absl::Status Launch(std::vector<ondevice::StageWork>& works, Room& room,
                      uint32_t most_rows = std::numeric_limits<uint32_t>::max());
  // Launches until all jobs are done. Then what lies behind `sums_at` in the room's results is on
  // the host. `cursors_at`: among them.
  absl::Status RunJobs(std::span<const ondevice::ClientJob> jobs, ondevice::TrainArgs args,
                       Room& room, size_t sums_at, size_t cursors_at, size_t result_bytes);
  void FreeMemory();
  // All but the ends, which outcomes refer to.
  void FreeBesideEnds();

  const ondevice::RunParts run_;
  device::Device& device_;
  const std::unique_ptr<device::Queue> queue_;
  device::Memory model_;  // the program's arrays
  ondevice::Program program_;
  BatchOrder order_;
  const DeviceLimits limits_;
  size_t turns_at_once_ = 1, ratings_at_once_ = 1;  // at most
  // What a turn takes beside its rows, and what all together may take, in bytes.
  uint64_t turn_bytes_ = 0, memory_share_ = 0;
  // Allocated when first needed, and kept.
  device::Memory upload_host_, work_;
  std::deque<Room> rooms_;  // per stage; ends refer to them
  Room rating_;
};

}  // namespace macaw::training
