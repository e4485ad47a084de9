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
#include "device/device.h"
#include "training/api/trainer.h"
#include "training/batch_order.h"
#include "training/device/stage_work.h"
#include "training/device/upload.h"

namespace macaw::training {

// Trains clients on a device (training/device/train_clients-inl.h): a stage of all turns is one
// copy in, one launch with a block a client, and one copy of losses out. Ends and rows stay on the
// device; the ends of a launch are copied out when somebody on the host looks at one. Outcomes have
// the same bits for any number of turns at once, and on every device.
// One thread; several trainers share a device, each with a queue of its own.
//
// Where memory does not suffice, it takes half as many turns from then on, and trains those again
// for which it did not; a plan's `more` may then be asked again. kResourceExhausted: not even one
// client fits. kUnavailable: the device is lost, and so is the trainer.
class DeviceTrainer final : public LocalTrainer {
 public:
  // Part of the numeric profile. Increase it with each change that gives other bits.
  static constexpr int kVersion = 1;

  // Whether it can do what the run asks of every stage. An error says briefly what it cannot do.
  static absl::Status Supports(const TrainerSetup& setup);
  // Whether it can carry out a stage: it has no hooks.
  static absl::Status Supports(const Stage& stage);

  // `device` must outlive it, and know the kernel kTrainClients.
  static absl::StatusOr<std::unique_ptr<DeviceTrainer>> Make(const TrainerSetup& setup,
                                                             device::Device& device);

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
  // What belongs to a launch and stays: what it read, its ends and sums (one after the other), and
  // page-locked room for them. The ends are copied to it when they are asked for.
  struct Room final : LeftOnDevice {
    explicit Room(device::Queue& of) : queue(of) {}
    absl::Status Fetch() override;

    device::Queue& queue;
    device::Memory upload, results, results_host;
    size_t ends_bytes = 0;
    bool fetched = false;
  };

  DeviceTrainer(ondevice::RunParts run, device::Device& device,
                std::unique_ptr<device::Queue> queue);

  absl::Status SendModel();
  void ChooseTurns(uint64_t free);
  absl::Status RunTogether(std::vector<ondevice::ClientTurn>& turns);
  // The turns' next stages, of those that have one.
  std::vector<ondevice::StageWork> NextStages(std::vector<ondevice::ClientTurn>& turns);
  // Carries out the works in one launch, in passes of at most `most_rows`. Works with an end have
  // it in their outcomes, and all have their sums.
  absl::Status Launch(std::vector<ondevice::StageWork>& works, Room& room,
                      uint32_t most_rows = std::numeric_limits<uint32_t>::max());
  void FreeMemory();

  const ondevice::RunParts run_;
  device::Device& device_;
  const std::unique_ptr<device::Queue> queue_;
  device::Memory model_;  // the program's arrays
  ondevice::Program program_;
  BatchOrder order_;
  size_t turns_at_once_ = 1;
  // Allocated when first needed, and kept.
  device::Memory upload_host_, work_;
  std::deque<Room> rooms_;  // per stage; ends refer to them
  Room rating_;
};

}  // namespace macaw::training
