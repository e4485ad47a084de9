#include "training/process/shared_rows.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "core/shared_memory.h"
#include "core/status.h"
#include "training/sequences.h"

namespace macaw::training::process {
namespace {

constexpr uint64_t kAligned = 64;

uint64_t Aligned(uint64_t bytes) { return (bytes + kAligned - 1) / kAligned * kAligned; }

}  // namespace

SharedRows::SharedRows(const TrainerSetup& setup)
    : gather_(setup.feature_type, setup.spec.input_shape, setup.transform, setup.dtype),
      dtype_(setup.dtype),
      task_(setup.task),
      outputs_(static_cast<uint64_t>(setup.spec.outputs)),
      positions_(setup.task == TaskKind::kNextToken
                     ? static_cast<uint64_t>(setup.spec.input_shape.front())
                     : 1),
      tokens_(setup.feature_type == data::FeatureType::kI32),
      targets_(setup.task == TaskKind::kRegression) {}

absl::StatusOr<std::shared_ptr<SharedRows>> SharedRows::Make(const TrainerSetup& setup) {
  MACAW_RETURN_IF_ERROR(
      data::BatchGather::Check(setup.feature_type, setup.spec.input_shape, setup.transform));
  std::shared_ptr<SharedRows> rows(new SharedRows(setup));
  // A program that could shrink the file would end this process.
  rows->file_ = Fd(::memfd_create("macaw-program-rows", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!rows->file_.open() ||
      ::fcntl(rows->file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    return absl::ErrnoToStatus(errno, "cannot share memory with workers.command");
  }
  MACAW_RETURN_IF_ERROR(rows->Grow(1));
  return rows;
}

SharedRows::~SharedRows() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

absl::Status SharedRows::Grow(uint64_t bytes) {
  if (bytes <= bytes_) return absl::OkStatus();
  const uint64_t size = RoundUpToPage(std::max(bytes, bytes_ + bytes_ / 2));
  const auto refuse = [&] {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot share ", size, " bytes of rows with workers.command"));
  };
  if (::ftruncate(file_.get(), static_cast<off_t>(size)) != 0) return refuse();
  void* const data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (data == MAP_FAILED) return refuse();
  if (data_ != nullptr) ::munmap(data_, bytes_);
  data_ = static_cast<std::byte*>(data);
  bytes_ = size;
  return absl::OkStatus();
}

absl::StatusOr<SharedRows::Place> SharedRows::Put(const data::Rows& rows, uint64_t begin,
                                                  uint64_t end) {
  if (begin > end || end > rows.size()) {
    return absl::OutOfRangeError(
        absl::StrCat("rows ", begin, " to ", end, " of ", rows.size(), " were asked for"));
  }
  if (begin < end && rows.block.features == nullptr) {
    return absl::FailedPreconditionError(
        "workers.give_rows: the data is only declared (data.source), so there are no rows to give");
  }
  const uint64_t count = end - begin, wide = SizeOf(dtype_);
  const bool lengths = rows.block.lengths != nullptr;
  Place place{.rows = count};
  place.labels = Aligned(count * gather_.example_bytes());
  place.outputs = Aligned(place.labels + count * (targets_ ? wide : sizeof(int64_t)));
  uint64_t all = Aligned(place.outputs + count * positions_ * outputs_ * wide);
  if (lengths) place.lengths = std::exchange(all, all + count * sizeof(int32_t));
  MACAW_RETURN_IF_ERROR(Grow(all));
  place.bytes = bytes_;

  chosen_.resize(count);
  std::iota(chosen_.begin(), chosen_.end(), static_cast<uint32_t>(begin));
  auto* const classes = reinterpret_cast<int64_t*>(data_ + place.labels);
  gather_.Gather(rows, chosen_, /*augment=*/nullptr,
                 At(place.features, count * gather_.example_bytes()),
                 {classes, targets_ ? 0 : count}, At(place.labels, targets_ ? count * wide : 0));
  if (lengths) {
    auto* const out = reinterpret_cast<int32_t*>(data_ + *place.lengths);
    for (uint64_t i = 0; i < count; ++i) out[i] = rows.block.lengths[rows.at(chosen_[i])];
  }
  return place;
}

absl::Status SharedRows::Rate(const Place& place, const Objective& objective,
                              std::span<double> sums) {
  const std::byte* const labels = data_ + place.labels;
  const auto* const own = reinterpret_cast<const int64_t*>(labels);
  classes_.clear();
  if (task_ == TaskKind::kNextToken) {
    const auto* const tokens = reinterpret_cast<const int32_t*>(data_ + place.features);
    classes_.resize(place.rows * positions_);
    for (uint64_t row = 0; row < place.rows; ++row) {
      uint64_t used = positions_;
      if (place.lengths.has_value()) {
        const auto* const lengths = reinterpret_cast<const int32_t*>(data_ + *place.lengths);
        used = std::clamp<int64_t>(lengths[row], 0, static_cast<int64_t>(positions_));
      }
      LabelPositions({tokens + row * positions_, positions_}, used, own[row],
                     classes_.data() + row * positions_);
    }
  } else if (!targets_) {
    classes_.assign(own, own + place.rows);
  }
  MACAW_RETURN_IF_ERROR(objective.CheckClasses(classes_));
  DispatchDType(dtype_, [&]<typename T>(T) {
    const auto* const outputs = reinterpret_cast<const T*>(data_ + place.outputs);
    Labels<T> rated{.classes = classes_};
    if (targets_) rated.targets = {reinterpret_cast<const T*>(labels), place.rows};
    const double rows = static_cast<double>(place.rows);
    const Mean mean = targets_ ? Mean{.divisor = rows, .rows = rows} : objective.MeanOf(rated);
    objective.Rate<T>(std::span(outputs, place.rows * positions_ * outputs_), rated, mean, {},
                      sums);
  });
  return absl::OkStatus();
}

}  // namespace macaw::training::process
