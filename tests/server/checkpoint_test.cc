#include "server/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/safetensors.h"
#include "tests/server/tiny_run.h"

namespace macaw::server {
namespace {

namespace fs = std::filesystem;
using fixtures::Slurp;
using fixtures::TinyLayout;
using fixtures::TinyModel;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::TemporaryFolder;

LayoutPtr MomentLayout() {
  static const LayoutPtr layout = ParameterLayout::Scalars("moment", 3, DType::kF64);
  return layout;
}

Checkpoint Example(uint32_t round) {
  Checkpoint checkpoint{.round = Round(round),
                        .fingerprint = {{"local.lr", "0.1"}, {"run.seed", "3"}},
                        .data_digest = DigestOf("the data"),
                        .profiles = {{"eager", "avx2", "libtorch 1"}, {"process", "any", "mine 2"}},
                        .owed_row = "{\"round\":5,\"text\":\"\\u00e4 \\\"quoted\\\"\"}",
                        .metrics_bytes = uint64_t{1} << 40,
                        .clients_bytes = 77,
                        .seconds = 12.5,
                        .feedback = std::string("\0\x01known", 7)};
  checkpoint.state.vectors["model"] = TinyModel();
  FlatVector moment(MomentLayout());
  for (double& value : moment.As<double>()) value = 1.0 / 3;
  checkpoint.state.vectors["moment"] = std::move(moment);
  checkpoint.state.numbers = {{"step", 0.1}, {"tiny", 5e-324}};
  return checkpoint;
}

absl::StatusOr<Checkpoint> Read(const std::string& run_dir) {
  return ReadNewestCheckpoint(run_dir, Example(1).fingerprint, {TinyLayout(), MomentLayout()});
}

TEST(Checkpoint, ComesBackBitForBit) {
  const TemporaryFolder folder;
  EXPECT_FALSE(HasCheckpoint(folder.path()));
  const Checkpoint written = Example(5);
  ASSERT_TRUE(WriteCheckpoint(folder.path(), written).ok());
  EXPECT_TRUE(HasCheckpoint(folder.path()));
  const auto read = Read(folder.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->round, Round(5));
  EXPECT_EQ(read->fingerprint, written.fingerprint);
  EXPECT_EQ(read->data_digest, written.data_digest);
  EXPECT_EQ(read->profiles, written.profiles);
  EXPECT_EQ(read->owed_row, written.owed_row);
  EXPECT_EQ(read->metrics_bytes, written.metrics_bytes);
  EXPECT_EQ(read->clients_bytes, 77u);
  EXPECT_EQ(read->seconds, 12.5);
  EXPECT_EQ(read->feedback, written.feedback);
  EXPECT_FALSE(read->begins_anew);
  EXPECT_EQ(read->state.numbers, written.state.numbers);
  ASSERT_EQ(read->state.vectors.size(), 2u);
  for (const auto& [name, vector] : written.state.vectors) {
    const FlatVector& back = read->state.vectors.at(name);
    EXPECT_EQ(back.layout()->digest(), vector.layout()->digest()) << name;
    EXPECT_TRUE(std::ranges::equal(back.view().bytes, vector.view().bytes)) << name;
  }
}

TEST(Checkpoint, KnowsThatAllBeginAnewAfterTheNextRound) {
  const TemporaryFolder folder;
  Checkpoint written = Example(5);
  written.begins_anew = true;
  ASSERT_TRUE(WriteCheckpoint(folder.path(), written).ok());
  const auto read = Read(folder.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->begins_anew);
}

TEST(Checkpoint, OpensAsSafetensorsWithItsVectorsByName) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteCheckpoint(folder.path(), Example(5)).ok());
  const auto file = SafetensorsFile::Open(folder / "checkpoints/round-00000005.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->Get("model", "F32").ok());
  EXPECT_TRUE(file->Get("moment", "F64").ok());
}

TEST(Checkpoint, KeepsTheNewestTwo) {
  const TemporaryFolder folder;
  for (const uint32_t round : {9u, 10u, 99u, 100u})
    ASSERT_TRUE(WriteCheckpoint(folder.path(), Example(round)).ok());
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder / "checkpoints"))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::UnorderedElementsAre("round-00000099.safetensors",
                                                   "round-00000100.safetensors"));
  EXPECT_EQ(Read(folder.path())->round, Round(100));
}

TEST(Checkpoint, IsRefusedWithAnyByteChanged) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteCheckpoint(folder.path(), Example(5)).ok());
  const std::string path = folder / "checkpoints/round-00000005.safetensors";
  const std::string whole = Slurp(path);
  ASSERT_TRUE(Read(folder.path()).ok());
  uint64_t header_size = 0;
  std::memcpy(&header_size, whole.data(), sizeof(header_size));
  const size_t data = sizeof(header_size) + header_size;
  const size_t blank = whole.find_last_not_of(' ', data - 1) + 1;  // from here to `data` is padding
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](size_t at, char byte) {
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte).flush();
  };
  for (size_t at = 0; at < whole.size(); ++at) {
    if (at >= blank && at < data) continue;
    for (const int mask : {0x01, 0x20, 0x80}) {
      put(at, static_cast<char>(whole[at] ^ mask));
      const auto read = Read(folder.path());
      EXPECT_FALSE(read.ok()) << "byte " << at << " of " << whole.size() << ", mask " << mask;
      EXPECT_THAT(read.status().ToString(), HasSubstr(read.ok() ? "" : path));
    }
    put(at, whole[at]);
  }
  EXPECT_TRUE(Read(folder.path()).ok()) << "nothing else was changed";
}

TEST(Checkpoint, IsRefusedCutShort) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteCheckpoint(folder.path(), Example(5)).ok());
  const std::string path = folder / "checkpoints/round-00000005.safetensors";
  const std::string whole = Slurp(path);
  for (const size_t size :
       {size_t{0}, size_t{7}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    fs::resize_file(path, size);
    EXPECT_THAT(Read(folder.path()).status().ToString(),
                AllOf(HasSubstr("damaged"), HasSubstr("no older one")))
        << size;
    std::ofstream(path, std::ios::binary) << whole;
  }
}

TEST(Checkpoint, IsRefusedByTheKeyThatDiffers) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteCheckpoint(folder.path(), Example(5)).ok());
  const std::vector<LayoutPtr> layouts = {TinyLayout(), MomentLayout()};
  const auto error = [&](std::map<std::string, std::string> fingerprint) {
    return ReadNewestCheckpoint(folder.path(), fingerprint, layouts).status().ToString();
  };
  EXPECT_THAT(error({{"local.lr", "0.2"}, {"run.seed", "3"}}),
              AllOf(HasSubstr("local.lr = 0.1"), HasSubstr("0.2")));
  EXPECT_THAT(error({{"local.lr", "0.1"}}), AllOf(HasSubstr("run.seed"), HasSubstr("not set")));
  EXPECT_THAT(error({{"local.lr", "0.1"}, {"run.seed", "3"}, {"model.name", "mlp"}}),
              HasSubstr("without model.name"));
}

TEST(Checkpoint, NamesKeysAndValuesAsAUserWritesThem) {
  const TemporaryFolder folder;
  Checkpoint written = Example(5);
  written.fingerprint["devices.drops_below"] = "false";
  ASSERT_TRUE(WriteCheckpoint(folder.path(), written).ok());
  const std::vector<LayoutPtr> layouts = {TinyLayout(), MomentLayout()};
  auto now = written.fingerprint;
  now["devices.drops_below"] = "true";
  EXPECT_THAT(ReadNewestCheckpoint(folder.path(), now, layouts).status().ToString(),
              HasSubstr("with round.below_quorum = \"extend\", the configuration now says "
                        "\"drop\""));
}

// Earlier releases kept the keys without an effect, too.
TEST(Checkpoint, MayHaveADefaultThatIsLeftOutNow) {
  for (const char* beta1 : {"0.9", "0.8"}) {
    const TemporaryFolder folder;
    auto written = Example(5);
    written.fingerprint["local.beta1"] = beta1;
    ASSERT_TRUE(WriteCheckpoint(folder.path(), written).ok());
    const absl::Status read =
        ReadNewestCheckpoint(folder.path(), Example(5).fingerprint, {TinyLayout(), MomentLayout()})
            .status();
    EXPECT_EQ(read.ok(), beta1 == std::string("0.9")) << read;
  }
}

TEST(Checkpoint, MayLackAKeyThatCameLaterIfThatHasItsDefault) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteCheckpoint(folder.path(), Example(5)).ok());
  for (const char* weight : {"0", "20"}) {
    auto now = Example(5).fingerprint;
    now["cohort.max_weight"] = weight;
    const absl::Status read =
        ReadNewestCheckpoint(folder.path(), now, {TinyLayout(), MomentLayout()}).status();
    EXPECT_EQ(read.ok(), weight == std::string("0")) << read;
  }
}

TEST(Checkpoint, IsRefusedForAnotherModelByTheNameOfTheVector) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteCheckpoint(folder.path(), Example(5)).ok());
  const auto status =
      ReadNewestCheckpoint(folder.path(), Example(5).fingerprint, {TinyLayout()}).status();
  EXPECT_THAT(status.ToString(), AllOf(HasSubstr("moment"), HasSubstr("another model")));
}

TEST(Checkpoint, IsNotJustAnySafetensorsFile) {
  const TemporaryFolder folder;
  ASSERT_TRUE(MakeDirectories(folder / "checkpoints").ok());
  ASSERT_TRUE(
      WriteModel(folder / "checkpoints/round-00000005.safetensors", TinyModel().view(), {}).ok());
  EXPECT_THAT(Read(folder.path()).status().ToString(), HasSubstr("not a checkpoint"));
}

}  // namespace
}  // namespace macaw::server
