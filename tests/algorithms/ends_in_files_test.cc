// Ends of stages that lie in a file, where a program writes them: their space becomes the update's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/around/channels.h"
#include "core/file_blocks.h"
#include "core/page_pool.h"
#include "core/peer/shared_vectors.h"
#include "testing/disk_space.h"
#include "testing/temporary_folder.h"

namespace macaw::algorithms {
namespace {

using testing_support::BytesOnDisk;

constexpr size_t kCount = size_t{9} << 20;           // numbers
constexpr uint64_t kBytes = kCount * sizeof(float);  // 36 MiB

void Must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::_Exit(1);
}

// What a program has left, and the model that it began from. The setting is the process's, so each
// of them has a process of its own, which ends with 0 if all holds.
struct Trained {
  explicit Trained(const std::string& path) : folder(path) {
    Must(KeepLargeBlocksIn(folder, size_t{6} << 20).ok(), "the folder takes files");
    memory = *peer::SharedVectors::Make("test", {layout}, Backing::kFileIfLarge);
    Must(memory->Reserve(0).ok(), "there is room");
    model = FlatVector::Unset(layout);
    for (size_t i = 0; i < kCount; ++i) {
      model.As<float>()[i] = static_cast<float>(i % 1000);
      memory->At(0).As<float>()[i] = 0.99f * static_cast<float>(i % 997);
    }
    channels = {{.name = "a", .layout = layout}, {.name = "b", .layout = layout}};
  }
  // The updates of so many channels; they are all of this end.
  std::vector<ConstVectorView> Updates(size_t count, Ends ends, double factor = 1) {
    const UpValue value = Displacement(memory->At(0), std::as_const(model).view(), factor);
    const std::vector<UpValue> values(count, value);
    const auto views = OnHost(std::span(channels).first(count), values, workspace, ends);
    Must(views.ok(), "they are computed");
    return *views;
  }

  const std::string folder;
  const LayoutPtr layout = ParameterLayout::Scalars("w", kCount, DType::kF32);
  std::unique_ptr<peer::SharedVectors> memory;
  FlatVector model;
  std::vector<aggregation::ChannelSpec> channels;
  Workspace workspace;
};

void MakeTheUpdate(const std::string& folder) {
  Trained trained(folder);
  std::vector<float> expected(kCount);
  for (size_t i = 0; i < kCount; ++i)
    expected[i] = trained.memory->At(0).As<float>()[i] - trained.model.As<float>()[i];
  const uint64_t before = BytesOnDisk(folder);
  const ConstVectorView stays = trained.Updates(1, Ends::kStay)[0];
  Must(std::ranges::equal(stays.As<float>(), expected), "the update is end minus model");
  Must(BytesOnDisk(folder) >= before + kBytes, "an end that stays has its space beside it");
  const uint64_t both = BytesOnDisk(folder);
  const ConstVectorView update = trained.Updates(1, Ends::kMayGo)[0];
  Must(std::ranges::equal(update.As<float>(), expected), "it has the same bits");
  Must(BytesOnDisk(folder) <= both + (uint64_t{1} << 20), "an end that goes leaves its space");
  // The next turn.
  Must(trained.memory->Reserve(0).ok(), "the program's memory is taken again");
  std::ranges::fill(trained.memory->At(0).As<float>(), 3.0f);
  std::_Exit(0);
}

TEST(EndsInFiles, LeaveTheirSpaceToTheUpdate) {
  const testing_support::TemporaryFolder folder;
  EXPECT_EXIT(MakeTheUpdate(folder.path()), testing::ExitedWithCode(0), "");
}

// SCAFFOLD sends two vectors of one end.
void MakeTwo(const std::string& folder) {
  Trained trained(folder);
  const std::vector<float> end(trained.memory->At(0).As<float>().begin(),
                               trained.memory->At(0).As<float>().end());
  const std::vector<ConstVectorView> updates = trained.Updates(2, Ends::kMayGo, 0.5);
  Must(std::ranges::equal(updates[0].As<float>(), updates[1].As<float>()), "both are right");
  Must(std::ranges::equal(trained.memory->At(0).As<float>(), end), "the end is there");
  std::_Exit(0);
}

TEST(EndsInFiles, OfTwoChannelsStay) {
  const testing_support::TemporaryFolder folder;
  EXPECT_EXIT(MakeTwo(folder.path()), testing::ExitedWithCode(0), "");
}

// A trainer of ours writes its vector again without asking for space.
void MakeItOfOurs(const std::string& folder) {
  Trained trained(folder);
  FlatVector ours = trained.model.Clone();
  const UpValue value =
      Displacement(std::as_const(ours).view(), std::as_const(trained.model).view());
  const auto views =
      OnHost(std::span(trained.channels).first(1), {&value, 1}, trained.workspace, Ends::kMayGo);
  Must(views.ok() && (*views)[0].As<float>()[7] == 0, "the update is zero");
  Must(HasItsSpace(ours.view().bytes.data()), "the vector of the trainer has its space");
  Must(std::ranges::equal(ours.As<float>(), trained.model.As<float>()), "and its numbers");
  std::_Exit(0);
}

TEST(EndsInFiles, OfATrainerOfOursStay) {
  const testing_support::TemporaryFolder folder;
  EXPECT_EXIT(MakeItOfOurs(folder.path()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace macaw::algorithms
