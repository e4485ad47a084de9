#include "cli/results/stored_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/vector.h"
#include "server/checkpoint.h"
#include "testing/temporary_folder.h"

// Where `macaw model` and `macaw diff` find the tensors of a run.

namespace macaw::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;

class StoredModelTest : public ::testing::Test {
 protected:
  static LayoutPtr LayoutOf(const std::string& name) {
    return *ParameterLayout::Make({{.name = name, .shape = {2, 2}}}, DType::kF32);
  }
  static FlatVector Filled(const std::string& name, float value) {
    FlatVector vector(LayoutOf(name));
    std::ranges::fill(vector.As<float>().first(4), value);
    return vector;
  }
  // A run that has frozen "0.weight" and trained "1.weight".
  void SetUp() override {
    folder_.Write("config.toml", "");
    const FlatVector base = Filled("0.weight", 1), trained = Filled("1.weight", 5);
    const std::string digest = DigestOf("base").Hex();
    ASSERT_TRUE(WriteModel(folder_ / "base.safetensors", base.view(), {{"digest", digest}}).ok());
    ASSERT_TRUE(
        WriteModel(folder_ / "trained.safetensors", trained.view(), {{"base", digest}}).ok());
    server::Checkpoint checkpoint{.round = Round(6), .base = DigestOf("base")};
    checkpoint.state.vectors["model"] = Filled("1.weight", 6);
    ASSERT_TRUE(server::WriteCheckpoint(folder_.path(), checkpoint).ok());
  }
  static float ValueOf(const StoredModel& model, const std::string& name) {
    float value = 0;
    std::memcpy(&value, model.tensors.at(name).bytes.data(), sizeof(value));
    return value;
  }
  std::string Error(const std::string& path, const std::string& base = "") const {
    return std::string(OpenStoredModel(path, base).status().message());
  }

  const testing_support::TemporaryFolder folder_;
};

TEST_F(StoredModelTest, OfARunIsItsNewestCheckpointWithTheBase) {
  const auto model = OpenStoredModel(folder_.path(), "");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->tensors, ElementsAre(Key("0.weight"), Key("1.weight")));
  EXPECT_THAT(model->frozen, ElementsAre("0.weight"));
  EXPECT_EQ(ValueOf(*model, "0.weight"), 1);
  EXPECT_EQ(ValueOf(*model, "1.weight"), 6);
  EXPECT_EQ(model->tensors.at("1.weight").shape, (std::vector<uint64_t>{2, 2}));
  EXPECT_EQ(model->run, folder_.path());
  EXPECT_EQ(model->bytes(), 32u);
}

TEST_F(StoredModelTest, OfARunThatHasEndedIsItsLast) {
  const LayoutPtr layout = *ParameterLayout::Make(
      {{.name = "0.weight", .shape = {2, 2}}, {.name = "1.weight", .shape = {2, 2}}}, DType::kF32);
  ASSERT_TRUE(WriteModel(folder_ / "model.safetensors", FlatVector(layout).view(), {}).ok());
  folder_.Write("summary.json", R"({"rounds": 6})");
  const auto last = OpenStoredModel(folder_.path(), "");
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(ValueOf(*last, "1.weight"), 0);
  EXPECT_THAT(last->frozen, ElementsAre("0.weight"));
  folder_.Write("summary.json", R"({"rounds": 5})");  // it was given more rounds since
  EXPECT_EQ(ValueOf(*OpenStoredModel(folder_.path(), ""), "1.weight"), 6);
}

TEST_F(StoredModelTest, OfWhatWasTrainedNeedsTheBaseThatItNames) {
  const auto model = OpenStoredModel(folder_ / "trained.safetensors", "");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(ValueOf(*model, "1.weight"), 5);
  const FlatVector other = Filled("0.weight", 2);
  ASSERT_TRUE(WriteModel(folder_ / "other.safetensors", other.view(),
                         {{"digest", DigestOf("another").Hex()}})
                  .ok());
  EXPECT_THAT(Error(folder_ / "trained.safetensors", folder_ / "other.safetensors"),
              HasSubstr("is not the base of"));
  ASSERT_TRUE(std::filesystem::remove(folder_ / "base.safetensors"));
  EXPECT_THAT(Error(folder_ / "trained.safetensors"), HasSubstr("--base"));
  EXPECT_THAT(Error(folder_.path()), HasSubstr("--base"));
}

// A whole model has all its tensors, whatever lies beside it.
TEST_F(StoredModelTest, OfAFileThatLacksNothingIsTheFile) {
  const testing_support::TemporaryFolder elsewhere;
  const auto copy = [&](const char* name, const std::string& to) {
    std::filesystem::copy_file(folder_ / name, to);
  };
  const FlatVector whole = Filled("2.weight", 7);
  ASSERT_TRUE(WriteModel(elsewhere / "model.safetensors", whole.view(), {}).ok());
  copy("base.safetensors", elsewhere / "base.safetensors");  // of a run, which is not this file's
  const auto plain = OpenStoredModel(elsewhere / "model.safetensors", "");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_THAT(plain->tensors, ElementsAre(Key("2.weight")));
  EXPECT_TRUE(plain->frozen.empty());
  // In a run's folder it says what was frozen, of the tensors that the model has.
  ASSERT_TRUE(WriteModel(folder_ / "other.safetensors", whole.view(), {}).ok());
  const auto of_run = OpenStoredModel(folder_ / "other.safetensors", "");
  ASSERT_TRUE(of_run.ok()) << of_run.status();
  EXPECT_THAT(of_run->tensors, ElementsAre(Key("2.weight")));
  EXPECT_TRUE(of_run->frozen.empty());
  // Whoever names a base gets it.
  const auto named = OpenStoredModel(elsewhere / "model.safetensors", folder_ / "base.safetensors");
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_THAT(named->tensors, ElementsAre(Key("0.weight"), Key("2.weight")));
  // What lacks tensors gets them from beside, but not from a file that is no run's.
  copy("trained.safetensors", elsewhere / "trained.safetensors");
  EXPECT_TRUE(OpenStoredModel(elsewhere / "trained.safetensors", "").ok());
  ASSERT_TRUE(
      WriteModel(elsewhere / "base.safetensors", Filled("0.weight", 2).view(), {{"format", "pt"}})
          .ok());
  EXPECT_THAT(Error(elsewhere / "trained.safetensors"),
              AllOf(HasSubstr("is no file of a run"), HasSubstr("--base")));
}

// Release 0.1.0 wrote a whole model beside what was trained, and named it.
TEST_F(StoredModelTest, OfAnEarlierReleaseIsWholeInItsCheckpoint) {
  ASSERT_TRUE(std::filesystem::remove(folder_ / "base.safetensors"));
  const std::string about =
      R"({"model": "whole_model", "tensors": [["0.weight", 0, [2, 2]], ["1.weight", 16, [2, 2]]]})";
  FlatVector whole(*ParameterLayout::Make(
      {{.name = "0.weight", .shape = {2, 2}}, {.name = "1.weight", .shape = {2, 2}}}, DType::kF32));
  whole.As<float>()[0] = 3;
  whole.As<float>()[16] = 4;
  const FlatVector part = Filled("1.weight", 4);
  ASSERT_TRUE(
      WriteSafetensors(
          folder_ / "checkpoints/round-00000007.safetensors",
          {{"model", "F32", {part.view().size()}, part.view().bytes},
           {"whole_model", "F32", {whole.view().size()}, std::as_const(whole).view().bytes}},
          {{"macaw", about}})
          .ok());
  const auto model = OpenStoredModel(folder_.path(), "");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(ValueOf(*model, "0.weight"), 3);
  EXPECT_EQ(ValueOf(*model, "1.weight"), 4);
}

// Views of elements of four bytes would reach far beyond a vector of bytes.
TEST_F(StoredModelTest, RefusesACheckpointOfAnotherDtype) {
  const std::vector<std::byte> bytes(4096);
  const std::string path = folder_ / "checkpoints/round-00000009.safetensors";
  for (const auto& [dtype, width] : {std::pair("U8", 1), {"F16", 2}, {"I64", 8}}) {
    const uint64_t all = bytes.size() / static_cast<uint64_t>(width);
    const std::string about = absl::StrCat(R"({"tensors": [["0.weight", )", all - 1, ", [1]]]}");
    ASSERT_TRUE(WriteSafetensors(path, {{"model", dtype, {all}, bytes}}, {{"macaw", about}}).ok());
    for (const std::string& opened : {path, folder_.path()})
      EXPECT_THAT(Error(opened), HasSubstr(absl::StrCat(R"("model" is )", dtype, ", and")));
  }
}

TEST_F(StoredModelTest, SaysWhyAPathCannotBeSeen) {
  const std::string loop = folder_ / "loop";
  std::filesystem::create_symlink(loop, loop);
  EXPECT_THAT(Error(loop), AllOf(HasSubstr(loop), HasSubstr("Too many levels")));
}

TEST_F(StoredModelTest, SaysWhatIsNoModel) {
  EXPECT_THAT(Error(folder_ / "nothing.safetensors"), HasSubstr("nothing.safetensors"));
  const testing_support::TemporaryFolder empty;
  EXPECT_THAT(Error(empty.path()), HasSubstr("no run's folder"));
  empty.Write("config.toml", "");
  EXPECT_THAT(Error(empty.path()), HasSubstr("no model yet"));
}

}  // namespace
}  // namespace macaw::cli
