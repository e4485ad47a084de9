// Random truncations and flips of valid files: each damaged file either opens, or is refused with
// one line that names a file. Deterministic; most useful under ASan.
#include <gmock/gmock.h>

#include "core/random.h"
#include "data/prepared.h"
#include "tests/data/npz_files.h"
#include "tests/data/test_files.h"

namespace macaw::data {
namespace {

std::string Damage(std::string bytes, RandomStream& stream) {
  const uint64_t kinds = stream.Below(4);
  if (kinds == 0 && !bytes.empty()) bytes.resize(stream.Below(bytes.size()));
  if (kinds == 1)
    bytes.insert(stream.Below(bytes.size() + 1), std::string(1 + stream.Below(9), '7'));
  if (kinds != 0) {
    for (uint64_t flips = 1 + stream.Below(4); flips > 0 && !bytes.empty(); --flips) {
      bytes[stream.Below(bytes.size())] ^= static_cast<char>(1U << stream.Below(8));
    }
  }
  return bytes;
}

// Damages `bytes` in many ways, writes them to `name`, opens `options`, and reads everything if it
// opens.
void Fuzz(const TemporaryFolder& folder, const std::string& name, const std::string& bytes,
          const DataOptions& options, const PartitionOptions& partition = {.clients = 2}) {
  ASSERT_TRUE(OpenDataset(options, partition).ok()) << OpenDataset(options, partition).status();
  RandomStream stream({.seed = 11});
  int opened = 0, refused = 0;
  for (int i = 0; i < 300; ++i) {
    folder.Write(name, Damage(bytes, stream));
    const auto dataset = OpenDataset(options, partition);
    if (dataset.ok()) {
      ++opened;
      CopyAll(**dataset);
      continue;
    }
    ++refused;
    EXPECT_THAT(std::string(dataset.status().message()), testing::HasSubstr(folder.path())) << i;
    EXPECT_THAT(std::string(dataset.status().message()), testing::Not(testing::HasSubstr("\n")))
        << i;
  }
  EXPECT_GT(refused, 30);
  EXPECT_GT(opened + refused, 299);
}

TEST(Fuzz, Idx) {
  for (const bool packed : {false, true}) {
    const TemporaryFolder folder;
    const std::string images = packed ? Gzip(IdxImages(20)) : IdxImages(20);
    const DataOptions options{
        .source = "idx", .path = folder.Write("f-images-idx3-ubyte", images), .test_fraction = 0};
    folder.Write("f-labels-idx1-ubyte", IdxLabels(20, 4));
    Fuzz(folder, "f-images-idx3-ubyte", images, options);
    folder.Write("f-images-idx3-ubyte", images);
    const std::string labels = packed ? Gzip(IdxLabels(20, 4)) : IdxLabels(20, 4);
    folder.Write("f-labels-idx1-ubyte", labels);
    Fuzz(folder, "f-labels-idx1-ubyte", labels, options);
  }
}

TEST(Fuzz, Cifar) {
  const TemporaryFolder folder;
  const std::string bytes =
      std::string(3073, '\1') + std::string(3073, '\2') + std::string(3073, '\3');
  Fuzz(folder, "c.bin", bytes,
       {.source = "cifar10", .path = folder.Write("c.bin", bytes), .test_fraction = 0});
}

TEST(Fuzz, Libsvm) {
  const TemporaryFolder folder;
  const std::string text = "+1 1:0.5 3:2\n-1 2:1\n+1 1:1 2:2 3:3\n-1 3:-4e-2\n";
  Fuzz(folder, "l.txt", text,
       {.source = "libsvm", .path = folder.Write("l.txt", text), .test_fraction = 0});
}

TEST(Fuzz, Csv) {
  const TemporaryFolder folder;
  const std::string text = "a,b,c\n1,2,0\n3,4,1\n5,6,1\n7,8.5,0\n";
  Fuzz(folder, "t.csv", text,
       {.source = "csv", .path = folder.Write("t.csv", text), .test_fraction = 0});
}

TEST(Fuzz, CsvOfWords) {
  const TemporaryFolder folder;
  const std::string text =
      "who,x,z,kind\nann,1,2,\"a, b\"\n\"b \"\"bob\"\" c\",3,4,cat\nann,5,6,cat\nbob,7,8,dog\n";
  Fuzz(folder, "w.csv", text,
       {.source = "csv",
        .path = folder.Write("w.csv", text),
        .test_fraction = 0,
        .client_column = "who"},
       {});
}

TEST(Fuzz, Leaf) {
  const TemporaryFolder folder;
  const std::string text =
      R"({"users":["a","b"],"num_samples":[2,1],"user_data":{"a":{"x":[[1,2],[3,4]],"y":[0,1]},"b":{"x":[[5,6]],"y":[1]}}})";
  Fuzz(folder, "u.json", text,
       {.source = "leaf", .path = folder.Write("u.json", text), .test_fraction = 0}, {});
}

TEST(Fuzz, Npz) {
  for (const Packing packing : {Packing::kStored, Packing::kDeflated, Packing::kWide}) {
    const TemporaryFolder folder;
    const std::string bytes =
        ZipBytes({{"x.npy", NpyOf<float>("<f4", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})},
                  {"y.npy", NpyOf<int64_t>("<i8", {4}, {0, 1, 1, 0})},
                  {"client.npy", NpyBytes("|S2", {4}, std::string("a\0bbbba\0", 8))}},
                 packing);
    Fuzz(folder, "n.npz", bytes,
         {.source = "npz", .path = folder.Write("n.npz", bytes), .test_fraction = 0}, {});
  }
}

TEST(Fuzz, Prepared) {
  const TemporaryFolder folder;
  const auto dataset = OpenDataset(
      {.source = "synthetic", .val_fraction = 0.1, .synthetic = {.clients = 3, .max_size = 4}}, {});
  const std::string path = folder.path() + "/p.safetensors";
  ASSERT_TRUE(WritePrepared(**dataset, path).ok());
  const std::string bytes = *ReadFile(path);
  // Only the header and the tables: features are most of the bytes and are not checked.
  const size_t tables = bytes.size() - 12 * 240;
  RandomStream stream({.seed = 3});
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    folder.Write("p.safetensors", Damage(bytes.substr(0, tables), stream) + bytes.substr(tables));
    const auto again = OpenDataset({.source = "prepared", .path = path}, {});
    if (again.ok()) {
      CopyAll(**again);
      continue;
    }
    ++refused;
    EXPECT_THAT(again.status().message(), testing::HasSubstr("p.safetensors"));
  }
  EXPECT_GT(refused, 300);
}

TEST(Fuzz, PartitionFile) {
  const TemporaryFolder folder;
  const std::string images = folder.Write("g-images-idx3-ubyte", IdxImages(20));
  folder.Write("g-labels-idx1-ubyte", IdxLabels(20, 4));
  const std::string json =
      R"({"a":[0,1,2],"b":[3,4],"test":[5,6],"validation":{"a":[7]},"client_test":{"b":[8]}})";
  const DataOptions data{.source = "idx", .path = images};
  Fuzz(folder, "p.json", json, data, {.scheme = "file", .path = folder.Write("p.json", json)});
}

}  // namespace
}  // namespace macaw::data
