#include "core/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/clock.h"
#include "core/random.h"
#include "testing/temporary_folder.h"

namespace macaw {
namespace {

LayoutPtr TestLayout(DType dtype = DType::kF32) {
  return *ParameterLayout::Make(
      {{.name = "0.weight", .shape = {2, 3}}, {.name = "0.bias", .shape = {2}}}, dtype);
}

FlatVector TestModel() {
  FlatVector model(TestLayout());
  for (int i = 0; i < 6; ++i) model.As<float>()[i] = static_cast<float>(i) / 7;
  return model;
}

TEST(Safetensors, AModelComesBackBitForBit) {
  const testing_support::TemporaryFolder folder;
  const std::string path = folder / "model.safetensors";
  const FlatVector model = TestModel();
  ASSERT_TRUE(WriteModel(path, model.view(), {{"round", "3"}}).ok());
  const absl::StatusOr<FlatVector> back = ReadModel(path, TestLayout());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(DigestOfValues(back->view()), DigestOfValues(model.view()));
  EXPECT_EQ(SafetensorsFile::Open(path)->metadata().at("round"), "3");
}

TEST(Safetensors, LargeTensorsBesideSmallOnesComeBackInTheirOrder) {
  constexpr size_t kSizes[] = {3, size_t{3} << 19, 5, 0, (size_t{1} << 18) + 1, 7};
  std::vector<std::vector<float>> values;
  std::vector<TensorToWrite> tensors;
  for (const size_t size : kSizes) {
    std::vector<float>& these = values.emplace_back(size);
    for (size_t i = 0; i < size; ++i) these[i] = static_cast<float>(10 * values.size() + i % 977);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    tensors.push_back({.name = absl::StrCat("t", i),
                       .dtype = "F32",
                       .shape = {kSizes[i]},
                       .bytes = std::as_bytes(std::span(values[i]))});
  }
  const testing_support::TemporaryFolder folder;
  const std::string path = folder / "large.safetensors";
  ASSERT_TRUE(WriteSafetensors(path, tensors, {{"key", "value"}}).ok());
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->metadata().at("key"), "value");
  for (const TensorToWrite& tensor : tensors) {
    const absl::StatusOr<TensorRef> read = file->Get(tensor.name, "F32");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->shape, tensor.shape);
    EXPECT_TRUE(std::ranges::equal(read->bytes, tensor.bytes)) << tensor.name;
  }
}

TEST(Safetensors, AnotherModelIsRefusedByName) {
  const testing_support::TemporaryFolder folder;
  const std::string path = folder / "other.safetensors";
  ASSERT_TRUE(WriteModel(path, TestModel().view(), {}).ok());
  const LayoutPtr other = *ParameterLayout::Make(
      {{.name = "0.weight", .shape = {3, 2}}, {.name = "0.bias", .shape = {2}}}, DType::kF32);
  const absl::Status status = ReadModel(path, other).status();
  EXPECT_NE(status.message().find("0.weight"), std::string::npos) << status;
}

// Any bytes are either parsed or refused: all truncations, and thousands of flipped bytes, of a
// valid file.
TEST(Safetensors, NoByteStringCrashesTheReader) {
  const testing_support::TemporaryFolder folder;
  const std::string path = folder / "fuzz.safetensors";
  ASSERT_TRUE(WriteModel(path, TestModel().view(), {{"k", "v"}}).ok());
  const std::string good = *ReadFile(path);
  for (size_t cut = 0; cut < good.size(); ++cut) {
    EXPECT_FALSE(
        SafetensorsFile::Parse(BytesOf(absl::string_view(good).substr(0, cut)), "cut").ok())
        << cut;
  }
  RandomStream stream({.seed = 1});
  for (int i = 0; i < 5000; ++i) {
    std::string bad = good;
    for (uint64_t flips = 1 + stream.Below(4); flips > 0; --flips) {
      bad[stream.Below(bad.size())] = static_cast<char>(stream.NextU32());
    }
    const auto file = SafetensorsFile::Parse(BytesOf(absl::string_view(bad)), "flipped");
    if (!file.ok()) continue;
    for (const auto& [name, tensor] : file->tensors()) {
      EXPECT_LE(tensor.bytes.data() + tensor.bytes.size(),
                reinterpret_cast<const std::byte*>(bad.data() + bad.size()));
    }
  }
}

// A file whose header is this text.
std::string FileWith(const std::string& header, const std::string& data) {
  std::string file(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(file.data(), &size, sizeof(size));
  return file + header + data;
}

absl::StatusOr<SafetensorsFile> Parsed(const std::string& file) {
  return SafetensorsFile::Parse(std::as_bytes(std::span(file)), "model");
}

TEST(Safetensors, RefusesTensorsThatShareBytes) {
  const auto file = [](int first_end, int second_begin) {
    return FileWith(absl::StrCat(R"({"b":{"dtype":"U8","shape":[4],"data_offsets":[)", second_begin,
                                 ",", second_begin + 4, R"(]},"a":{"dtype":"U8","shape":[)",
                                 first_end, R"(],"data_offsets":[0,)", first_end, "]}}"),
                    "12345678");
  };
  EXPECT_TRUE(Parsed(file(4, 4)).ok());
  EXPECT_TRUE(Parsed(file(0, 4)).ok()) << "a tensor without numbers shares nothing";
  const absl::StatusOr<SafetensorsFile> shared = Parsed(file(5, 4));
  EXPECT_EQ(shared.status().message(),
            "model is not a safetensors file: tensors \"a\" and \"b\" share bytes");
}

// A reader that looks through all names for each new one takes minutes here, and two hours where
// the header is as large as it may be.
TEST(Safetensors, AHeaderOfManyTensorsIsReadAtOnce) {
  constexpr int kTensors = 300'000;
  std::string header = "{";
  for (int i = 0; i < kTensors; ++i) {
    absl::StrAppend(&header, i > 0 ? "," : "", "\"t", i,
                    R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})");
  }
  const std::string file = FileWith(header + "}", "");
  const TimePoint begun = SteadyClock().Now();
  const absl::StatusOr<SafetensorsFile> read = Parsed(file);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->tensors().size(), size_t{kTensors});
  EXPECT_LT(ToSeconds(SteadyClock().Now() - begun), 30);
}

}  // namespace
}  // namespace macaw
