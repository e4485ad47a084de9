#include "training/device/device_trainer.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/logging.h"
#include "core/status.h"
#include "training/device/work_estimate.h"
#include "training/sequences.h"

namespace macaw::training {
namespace {

using ondevice::ClientJob;
using ondevice::ClientTurn;
using ondevice::JobCursor;
using ondevice::JobMemory;
using ondevice::kMostSums;
using ondevice::Program;
using ondevice::RunParts;
using ondevice::StageWork;
using ondevice::Upload;

// Clients at once for each processor: some run side by side on it, others take the place of those
// that are done.
constexpr uint64_t kTurnsPerProcessor = 4;
// Of the free memory, what may be used at first: several slots share a device.
constexpr uint64_t kMemoryShare = 3;  // one in so many
// Rows that a block rates. Part of the bits of a sum of losses.
constexpr uint64_t kRatedRows = 32;

size_t RoundUp(size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

absl::Status DeviceTrainer::Supports(const TrainerSetup& setup) {
  if (setup.dtype != DType::kF32) return absl::UnimplementedError("it computes in float32 only");
  if (setup.hooks) return absl::UnimplementedError("the algorithm has hooks");
  if (setup.task == TaskKind::kReconstruction)
    return absl::UnimplementedError("run.task is \"reconstruction\", whose loss it does not have");
  if (setup.slices) return absl::UnimplementedError("the algorithm trains slices of the model");
  if (setup.local.precision != "full")
    return absl::UnimplementedError("it computes in full precision only (local.precision)");
  if (setup.local.micro_batch > 0) {
    return absl::UnimplementedError(
        "it takes a batch in pieces of its own: take local.micro_batch out");
  }
  if (setup.local.checkpoint) {
    return absl::UnimplementedError(
        "it computes no activations again: take local.checkpoint out, or use workers.backend = "
        "\"torch\" with workers.devices");
  }
  constexpr int64_t kMostPad = 8191;  // of a move's code
  if (setup.transform.pad_crop > kMostPad) {
    return absl::UnimplementedError(absl::StrCat("it pads by at most ", kMostPad, " pixels"));
  }
  return ondevice::CompiledModel::Compile(setup.spec, setup.local.batch_size).status();
}

absl::Status DeviceTrainer::Supports(const Stage& stage) {
  if (stage.hooks != nullptr) return absl::UnimplementedError("a stage has hooks");
  if (stage.kind == StageKind::kStatistics)
    return absl::UnimplementedError("a stage is of statistics");
  if (stage.masks_classes) return absl::UnimplementedError("a stage masks classes");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DeviceTrainer>> DeviceTrainer::Make(const TrainerSetup& setup,
                                                                   device::Device& device,
                                                                   const DeviceLimits& limits) {
  if (setup.spec.layout == nullptr || setup.spec.layout->dtype() != setup.dtype) {
    return absl::InvalidArgumentError("the model was built for another dtype than the run's");
  }
  MACAW_RETURN_IF_ERROR(Supports(setup));
  MACAW_RETURN_IF_ERROR(CheckSequences(setup.spec, setup.feature_type, setup.task));
  MACAW_ASSIGN_OR_RETURN(RunParts run, RunParts::Make(setup));
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<device::Queue> queue, device.MakeQueue());
  std::unique_ptr<DeviceTrainer> trainer(
      new DeviceTrainer(std::move(run), device, std::move(queue), limits));
  MACAW_RETURN_IF_ERROR(trainer->SendModel());
  MACAW_ASSIGN_OR_RETURN(const uint64_t free, device.FreeMemory());
  trainer->ChooseTurns(free);
  return trainer;
}

DeviceTrainer::DeviceTrainer(RunParts run, device::Device& device,
                             std::unique_ptr<device::Queue> queue, const DeviceLimits& limits)
    : run_(std::move(run)),
      device_(device),
      queue_(std::move(queue)),
      program_(run_.model.program),
      limits_(limits),
      rating_(device_, *queue_) {}

absl::Status DeviceTrainer::SendModel() {
  const data::BatchGather& gather = run_.gather;
  const std::vector<float> scale(gather.scale().begin(), gather.scale().end());
  const std::vector<float> shift(gather.shift().begin(), gather.shift().end());
  Upload upload;
  const size_t ops = upload.Add(std::span<const ondevice::Op>(run_.model.ops));
  const size_t taps = upload.Add(std::span<const ondevice::Tap>(run_.model.taps));
  const size_t tensors = upload.Add(std::span<const ondevice::Tensor>(run_.model.tensors));
  const size_t scales = upload.Add(std::span<const float>(scale));
  const size_t shifts = upload.Add(std::span<const float>(shift));
  MACAW_RETURN_IF_ERROR(upload.Allocate(device_, limits_.upload_bytes, upload_host_, model_));
  program_.ops = upload.Address<const ondevice::Op>(ops);
  program_.taps = upload.Address<const ondevice::Tap>(taps);
  program_.tensors = upload.Address<const ondevice::Tensor>(tensors);
  program_.scale = upload.Address<const float>(scales);
  program_.shift = upload.Address<const float>(shifts);
  const std::vector<int64_t>& shape = run_.setup.spec.input_shape;
  const auto elements = static_cast<uint32_t>(gather.example_elements());
  const bool image = shape.size() == 3;
  program_.task = static_cast<uint32_t>(run_.setup.task);
  const bool prepared = run_.prepares_rows();
  program_.bytes_features = run_.setup.feature_type == data::FeatureType::kU8 && !prepared ? 1 : 0;
  program_.identity = gather.is_identity() || prepared ? 1 : 0;
  program_.channels_each = scale.size() > 1 ? 1 : 0;
  program_.height = image ? static_cast<uint32_t>(shape[1]) : 1;
  program_.width = image ? static_cast<uint32_t>(shape[2]) : 1;
  program_.elements = ondevice::Divisor(elements);
  program_.plane = ondevice::Divisor(elements / static_cast<uint32_t>(shape[0]));
  program_.line = ondevice::Divisor(program_.width);
  MACAW_RETURN_IF_ERROR(upload.Send(*queue_));
  return queue_->Wait();
}

// From what a client of the run's own [local] needs, without its rows; other stages may need more.
void DeviceTrainer::ChooseTurns(uint64_t free) {
  const LocalConfig& local = run_.setup.local;
  const uint32_t most =
      run_.model.takes_whole_batches ? run_.model.batch_rows : run_.model.pass_rows;
  const uint32_t batch = local.batch_size == 0 ? run_.model.pass_rows : local.batch_size;
  const uint64_t vectors = 4 + ondevice::StateVectors(local);  // end, gradient, v and its sum
  turn_bytes_ =
      JobMemory(program_, std::min(batch, most)).total + vectors * run_.setup.spec.layout->bytes();
  memory_share_ = free / kMemoryShare;
  ratings_at_once_ = kTurnsPerProcessor * device_.info().processors;
  turns_at_once_ = std::clamp<uint64_t>(memory_share_ / turn_bytes_, 1, ratings_at_once_);
}

size_t DeviceTrainer::Together(std::span<const Turn> turns) const {
  const size_t most = std::min(turns_at_once_, turns.size());
  uint64_t bytes = 0;
  for (size_t count = 0; count < most; ++count) {
    bytes += turn_bytes_ + run_.RowBytes(turns[count]);
    if (bytes > memory_share_) return std::max<size_t>(1, count);
  }
  return most;
}

size_t DeviceTrainer::RatedTogether(uint32_t batch) const {
  const auto rows = std::min({uint32_t{kRatedRows}, batch, run_.model.pass_rows});
  const uint64_t model = run_.setup.spec.layout->bytes();
  const uint64_t each = JobMemory(program_, rows).total + kRatedRows * run_.RatedRowBytes();
  return std::clamp<uint64_t>((memory_share_ - std::min(model, memory_share_)) / each, 1,
                              ratings_at_once_);
}

TurnOutcome DeviceTrainer::Run(const LocalPlan& plan, const ClientTask& task) {
  const Turn turn{&plan, &task};
  return std::move(RunMany(std::span(&turn, 1)).front());
}

std::vector<TurnOutcome> DeviceTrainer::RunMany(std::span<const Turn> turns) {
  if (turns.empty()) return {};
  bool again = false;
  while (true) {
    const size_t count = Together(turns);
    std::vector<ClientTurn> together;
    for (const Turn& turn : turns.first(count)) together.emplace_back(turn);
    const absl::Status status = RunTogether(together);
    if (absl::IsResourceExhausted(status)) {
      FreeMemory();
      if (TakesFewer("turns", count, status, turns_at_once_, again)) continue;
    }
    std::vector<TurnOutcome> outcomes;
    for (ClientTurn& turn : together) {
      if (!turn.status.ok()) {
        outcomes.push_back(std::move(turn.status));
      } else if (!status.ok()) {
        outcomes.push_back(Annotate(status, absl::StrCat("client ", turn.turn.task->client.value)));
      } else {
        outcomes.push_back(std::move(turn.outcomes));
      }
    }
    return outcomes;
  }
}

bool DeviceTrainer::TakesFewer(const char* what, size_t count, const absl::Status& why,
                               size_t& at_once, bool& again) {
  if (count == 1 && again) return false;
  again = count == 1;
  at_once = std::max<size_t>(1, count / 2);
  Logger("training")
      .Warning(absl::StrCat("device_memory ", what, "=", count, " next=", at_once, " why=\"",
                            why.message(), "\""));
  return true;
}

absl::Status DeviceTrainer::RunTogether(std::vector<ClientTurn>& turns) {
  for (size_t stage = 0;; ++stage) {
    std::vector<StageWork> works = NextStages(turns);
    if (works.empty()) return absl::OkStatus();
    if (rooms_.size() <= stage) rooms_.emplace_back(device_, *queue_);
    MACAW_RETURN_IF_ERROR(Launch(works, rooms_[stage]));
    for (StageWork& work : works) work.turn()->outcomes.push_back(std::move(work.outcome()));
  }
}

std::vector<StageWork> DeviceTrainer::NextStages(std::vector<ClientTurn>& turns) {
  std::vector<StageWork> works;
  for (ClientTurn& turn : turns) {
    if (turn.done) continue;
    const size_t index = turn.outcomes.size();
    const absl::StatusOr<const Stage*> stage = turn.stages.Next(turn.outcomes);
    turn.done = !stage.ok() || *stage == nullptr;
    if (!stage.ok()) turn.status = stage.status();
    if (turn.done) continue;
    const auto make = [&]() -> absl::StatusOr<StageWork> {
      if (const absl::Status status = Supports(**stage); !status.ok())
        return CannotDo("device", status, index < turn.turn.plan->stages.size());
      return StageWork::Make(run_, **stage, turn, order_);
    };
    absl::StatusOr<StageWork> work = make();
    if (work.ok()) {
      works.push_back(*std::move(work));
      continue;
    }
    turn.done = true;
    turn.status = Annotate(
        work.status(), absl::StrCat("client ", turn.turn.task->client.value, ": stage ", index));
  }
  return works;
}

absl::Status DeviceTrainer::Launch(std::vector<StageWork>& works, Room& room, uint32_t most_rows) {
  const auto rows_of = [&](const StageWork& work) {
    return std::min(work.pass_rows(run_), most_rows);
  };
  uint32_t pass_rows = 1;
  for (const StageWork& work : works)
    pass_rows = std::max(pass_rows, std::min(rows_of(work), work.most_rows()));
  // The longest first, so that the last ones to end are short.
  std::vector<size_t> sequence(works.size());
  std::iota(sequence.begin(), sequence.end(), size_t{0});
  std::ranges::stable_sort(sequence, std::greater<>(),
                           [&](size_t i) { return works[i].passed_rows(); });

  Upload upload;
  const size_t jobs = upload.Reserve(works.size() * sizeof(ClientJob));
  for (StageWork& work : works) work.AddTo(run_, upload);
  MACAW_RETURN_IF_ERROR(upload.Allocate(device_, limits_.upload_bytes, upload_host_, room.upload));

  // Ends, then sums, cursors and outputs; activations, then vectors.
  const LayoutPtr& layout = run_.setup.spec.layout;
  const size_t vector_bytes = layout->bytes();
  const size_t memory_bytes = JobMemory(program_, pass_rows).total;
  size_t ends = 0, vectors = 0, outputs = 0;
  for (const StageWork& work : works) {
    ends += work.has_end() ? 1 : 0;
    vectors += work.vectors(run_);
    outputs += work.output_count();
  }
  const size_t sums_at = ends * vector_bytes;
  const size_t cursors_at = sums_at + works.size() * kMostSums * sizeof(double);
  const size_t outputs_at = cursors_at + works.size() * sizeof(JobCursor);
  const size_t result_bytes = outputs_at + outputs * sizeof(float);
  const size_t vectors_at = RoundUp(works.size() * memory_bytes);
  MACAW_RETURN_IF_ERROR(
      device::Grow(device_, result_bytes - sums_at, /*on_host=*/true, room.results_host));
  MACAW_RETURN_IF_ERROR(device::Grow(device_, result_bytes, /*on_host=*/false, room.results));
  MACAW_RETURN_IF_ERROR(device::Grow(device_, vectors_at + vectors * vector_bytes,
                                     /*on_host=*/false, work_));

  size_t end_at = 0, vector_at = vectors_at, output_at = outputs_at;
  std::vector<ClientJob> made(works.size());
  for (size_t i = 0; i < works.size(); ++i) {
    StageWork& work = works[i];
    float* end = nullptr;
    if (work.has_end()) {
      end = reinterpret_cast<float*>(room.results.data() + end_at);
      work.outcome().end = EndVector(layout.get(), end_at, end, room);
      end_at += vector_bytes;
    }
    made[i] = work.Job(run_, upload, end, reinterpret_cast<float*>(work_.data() + vector_at),
                       work_.data() + i * memory_bytes,
                       reinterpret_cast<double*>(room.results.data() + sums_at) + i * kMostSums,
                       reinterpret_cast<float*>(room.results.data() + output_at));
    made[i].pass_rows = rows_of(work);
    work.KeepsOutputsAt(
        {reinterpret_cast<const float*>(room.results_host.data() + (output_at - sums_at)),
         work.output_count()});
    output_at += work.outputs().size_bytes();
    vector_at += work.vectors(run_) * vector_bytes;
    if (work.turn() != nullptr) work.turn()->ends.push_back(end);
  }
  std::vector<ClientJob> jobs_in_order;
  for (const size_t i : sequence) jobs_in_order.push_back(made[i]);
  std::ranges::copy(jobs_in_order, upload.Host<ClientJob>(jobs));
  room.ends_bytes = sums_at;
  room.fetched = nullptr;
  MACAW_RETURN_IF_ERROR(upload.Send(*queue_));
  const ondevice::LaunchSize size =
      ondevice::SizeOfLaunch(program_, run_.model.row_work, limits_.launch_seconds, works.size(),
                             device_.info().processors);
  ondevice::TrainArgs args;
  args.program = program_;
  args.jobs = upload.Address<const ClientJob>(jobs);
  args.count = static_cast<uint32_t>(works.size());
  args.pass_rows = pass_rows;
  args.most_rows = size.most_rows;
  args.step_rows = size.step_rows;
  MACAW_RETURN_IF_ERROR(RunJobs(jobs_in_order, args, room, sums_at, cursors_at, result_bytes));
  for (size_t i = 0; i < works.size(); ++i) {
    const auto* sums = room.results_host.As<const double>() + i * kMostSums;
    MetricSums& to = works[i].outcome().sums;
    std::copy_n(sums, to.size(), to.begin());
  }
  return absl::OkStatus();
}

absl::Status DeviceTrainer::RunJobs(std::span<const ClientJob> jobs, ondevice::TrainArgs args,
                                    Room& room, size_t sums_at, size_t cursors_at,
                                    size_t result_bytes) {
  WorkCounter* const work = run_.setup.work;
  args.cursors = reinterpret_cast<JobCursor*>(room.results.data() + cursors_at);
  const auto* const cursors =
      reinterpret_cast<const JobCursor*>(room.results_host.data() + (cursors_at - sums_at));
  queue_->Zero(room.results.data() + cursors_at, jobs.size() * sizeof(JobCursor));
  std::vector<uint32_t> counted(jobs.size());  // passes
  // The jobs with most rows come first, so that those that are done soonest are launched no more.
  while (args.count > 0) {
    if (work != nullptr && work->given_up())
      return absl::CancelledError("what this trainer does is not wanted any more");
    queue_->Run(ondevice::kTrainClients,
                {.blocks = args.count,
                 .threads = ondevice::kMostThreads,
                 .shared_bytes = ondevice::kSharedBytes},
                args);
    queue_->CopyOut(std::span(room.results_host.data(), result_bytes - sums_at),
                    room.results.data() + sums_at);
    MACAW_RETURN_IF_ERROR(queue_->Wait());
    uint32_t left = 0;
    for (uint32_t i = 0; i < args.count; ++i) {
      if (cursors[i].step < jobs[i].steps) left = i + 1;
      for (; counted[i] < cursors[i].passes; ++counted[i])
        if (work != nullptr) work->Count();
    }
    args.count = left;
  }
  return absl::OkStatus();
}

absl::Status DeviceTrainer::Room::Fetch() {
  if (fetched != nullptr) return absl::OkStatus();
  const absl::Status grown = device::Grow(device, ends_bytes, /*on_host=*/true, ends_host);
  if (absl::IsResourceExhausted(grown)) {
    // Copies to other memory are slower, and work.
    ends_host = device::Memory();
    ends_pageable = AlignedBuffer::Unset(ends_bytes);
  } else {
    MACAW_RETURN_IF_ERROR(grown);
  }
  std::byte* const to = ends_host.empty() ? ends_pageable.bytes().data() : ends_host.data();
  queue.CopyOut(std::span(to, ends_bytes), results.data());
  MACAW_RETURN_IF_ERROR(queue.Wait());
  fetched = to;
  return absl::OkStatus();
}

void DeviceTrainer::FreeMemory() {
  FreeBesideEnds();
  rooms_.clear();
}

void DeviceTrainer::FreeBesideEnds() {
  for (device::Memory* const memory :
       {&upload_host_, &work_, &rating_.upload, &rating_.results, &rating_.results_host})
    *memory = device::Memory();
  for (Room& room : rooms_) room.upload = device::Memory();
}

absl::StatusOr<MetricSums> DeviceTrainer::Evaluate(ConstVectorView model, const data::Rows& rows,
                                                   uint64_t begin, uint64_t end, uint32_t batch) {
  const auto evaluate = [&]() -> absl::StatusOr<MetricSums> {
    MACAW_RETURN_IF_ERROR(CheckVector(run_.setup.spec, model, "model"));
    MACAW_RETURN_IF_ERROR(
        CheckRows(rows, run_.setup.feature_type, run_.gather.example_elements(), run_.setup.task));
    if (begin > end || end > rows.size() || batch == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(rows.size(), " rows in all, in batches of ", batch));
    }
    MACAW_RETURN_IF_ERROR(StageWork::CheckValues(run_, run_.objective, rows, begin, end));
    MetricSums sums(run_.objective.metrics());
    const ClassCounts counts = run_.setup.CountedClasses();
    MetricSums counted(counts.size());
    bool again = false;
    for (uint64_t first = begin; first < end;) {
      const uint64_t last = std::min(first + kRatedRows * RatedTogether(batch), end);
      std::vector<StageWork> works;
      for (uint64_t at = first; at < last; at += kRatedRows) {
        works.push_back(StageWork::Rating(run_, rows, at, std::min(at + kRatedRows, last), model));
        works.back().outcome().sums.resize(sums.size());
      }
      const absl::Status status = Launch(works, rating_, batch);
      if (absl::IsResourceExhausted(status)) {
        FreeBesideEnds();
        if (TakesFewer("ratings", works.size(), status, ratings_at_once_, again)) continue;
      }
      MACAW_RETURN_IF_ERROR(status);
      for (size_t i = 0; i < works.size(); ++i) {
        AddTo(sums, works[i].outcome().sums);
        if (!counts.any()) continue;
        const uint64_t at = first + i * kRatedRows;
        std::vector<int64_t> labels;
        for (uint64_t row = at; row < std::min(at + kRatedRows, last); ++row)
          labels.push_back(rows.block.classes[rows.at(row)]);
        counts.Add(works[i].outputs().data(), static_cast<size_t>(run_.setup.spec.outputs), labels,
                   counted);
      }
      first = last;
      again = false;
    }
    sums.insert(sums.end(), counted.begin(), counted.end());
    return sums;
  };
  absl::StatusOr<MetricSums> sums = evaluate();
  if (sums.ok()) return sums;
  return Annotate(sums.status(), absl::StrCat("evaluation of rows ", begin, " to ", end));
}

}  // namespace macaw::training
