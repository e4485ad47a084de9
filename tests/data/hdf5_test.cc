// Files as TensorFlow Federated writes them, made with the HDF5 library itself.
#include <gmock/gmock.h>
#include <hdf5.h>

#include <numeric>

#include "data/detect.h"
#include "data/vocabulary.h"
#include "tests/data/test_files.h"

namespace macaw::data {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class TffWriter {
 public:
  explicit TffWriter(const std::string& path)
      : file_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {}
  ~TffWriter() { H5Fclose(file_); }

  template <typename T>
  void Write(const std::string& client, const std::string& name, hid_t type,
             const std::vector<hsize_t>& shape, const std::vector<T>& values) {
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    const hid_t links = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    const hid_t set = H5Dcreate2(file_, ("examples/" + client + "/" + name).c_str(), type, space,
                                 links, H5P_DEFAULT, H5P_DEFAULT);
    EXPECT_GE(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    H5Dclose(set), H5Pclose(links), H5Sclose(space);
  }
  void WriteTexts(const std::string& client, const std::vector<const char*>& texts) {
    const hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    Write(client, "snippets", type, {texts.size()}, texts);
    H5Tclose(type);
  }
  // `n` images of 3 x 2 whose pixels count up from `first`.
  void WriteDigits(const std::string& client, hsize_t n, float first,
                   const std::vector<int32_t>& labels) {
    std::vector<float> pixels(n * 6);
    std::iota(pixels.begin(), pixels.end(), first);
    Write(client, "pixels", H5T_NATIVE_FLOAT, {n, 3, 2}, pixels);
    Write(client, "label", H5T_NATIVE_INT32, {labels.size()}, labels);
  }

 private:
  const hid_t file_;
};

class Hdf5 : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_.path() + "/" + name; }
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& path,
                                                       const std::string& test = "") {
    return OpenDataset({.source = "hdf5", .path = path, .test_path = test, .test_fraction = 0}, {});
  }
  TemporaryFolder folder_;
};

TEST_F(Hdf5, ClientsOfFemnistAreImagesInTheOrderOfTheirNames) {
  const std::string train = Path("train.h5"), test = Path("test.h5");
  {
    TffWriter writer(train);
    writer.WriteDigits("f2", 2, 100, {1, 0});
    writer.WriteDigits("f1", 1, 0.5, {2});
    TffWriter other(test);
    other.WriteDigits("f2", 1, 200, {2});
    other.WriteDigits("new", 1, 300, {0});
  }
  const auto dataset = Open(train, test);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const DatasetInfo& info = (*dataset)->info();
  EXPECT_THAT(info.input_shape, ElementsAre(1, 3, 2));
  EXPECT_EQ(info.classes, 3);
  EXPECT_EQ(info.clients, 3u);
  EXPECT_EQ((*dataset)->ClientName(ClientId(0)), "f1");
  EXPECT_EQ((*dataset)->ClientName(ClientId(2)), "new");
  const auto rows = Copy(**dataset, 1, Split::kTrain);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_THAT(Floats(rows[1]), ElementsAre(106, 107, 108, 109, 110, 111));
  EXPECT_EQ(rows[0].label, 1);
  EXPECT_THAT(Floats(Copy(**dataset, 1, Split::kTest)[0]), Contains(205));
  EXPECT_EQ((*dataset)->Examples(ClientId(2), Split::kTrain), 0u);
  EXPECT_EQ((*dataset)->CentralTest().size(), 2u);
  EXPECT_EQ(*DetectSource(train), "hdf5");
}

TEST_F(Hdf5, ImagesOfCifarComeWithChannelsFirstAndTheirFineLabels) {
  {
    TffWriter writer(Path("c.h5"));
    std::vector<uint8_t> pixels(2 * 5 * 5 * 3);
    std::iota(pixels.begin(), pixels.end(), uint8_t{0});
    writer.Write("0", "image", H5T_NATIVE_UINT8, {2, 5, 5, 3}, pixels);
    writer.Write<int64_t>("0", "label", H5T_NATIVE_INT64, {2}, {1, 0});
    writer.Write<int64_t>("0", "coarse_label", H5T_NATIVE_INT64, {2}, {7, 7});
  }
  const auto dataset = Open(Path("c.h5"));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->info().input_shape, ElementsAre(3, 5, 5));
  EXPECT_THAT((*dataset)->info().notes, Contains("not read: coarse_label"));
  const RowCopy row = Copy(**dataset, 0, Split::kTrain)[0];
  EXPECT_EQ(row.label, 1);
  EXPECT_EQ(row.features.substr(0, 3), std::string("\0\3\6", 3));  // the red plane
  EXPECT_EQ(row.features.substr(25, 2), std::string("\1\4", 2));
}

TEST_F(Hdf5, SnippetsBecomeRowsOfEightyCharactersAndTheNextOne) {
  const std::string line(100, 'x');
  {
    TffWriter writer(Path("s.h5"));
    writer.WriteTexts("KING", {"To be", line.c_str()});
    writer.WriteTexts("QUEEN", {""});
  }
  const auto dataset = Open(Path("s.h5"));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->info().input_shape, ElementsAre(80));
  EXPECT_EQ((*dataset)->info().classes, kCharacters);
  EXPECT_EQ((*dataset)->Examples(ClientId(0), Split::kTrain), 3u);
  const auto rows = (*dataset)->Client(ClientId(0), Split::kTrain);
  const auto* tokens = reinterpret_cast<const int32_t*>(rows->block.features);
  const auto at = [&](uint64_t row, uint64_t i) { return tokens[rows->at(row) * 80 + i]; };
  const auto length = [&](uint64_t row) { return rows->block.lengths[rows->at(row)]; };
  const auto label = [&](uint64_t row) { return rows->block.classes[rows->at(row)]; };
  // "\nTo be" and the line break behind it.
  EXPECT_EQ(length(0), 6);
  EXPECT_EQ(at(0, 0), TokenOf('\n'));
  EXPECT_EQ(at(0, 1), TokenOf('T'));
  EXPECT_EQ(at(0, 6), 0);
  EXPECT_EQ(label(0), TokenOf('\n'));
  // 102 characters: 80 and the next one, then 20 and the line break.
  EXPECT_EQ(length(1), 80);
  EXPECT_EQ(label(1), TokenOf('x'));
  EXPECT_EQ(length(2), 20);
  EXPECT_EQ(label(2), TokenOf('\n'));
  // An empty text: a line break behind a line break.
  EXPECT_EQ((*dataset)->Examples(ClientId(1), Split::kTrain), 1u);
}

TEST_F(Hdf5, SaysWhatAFileHasInstead) {
  { TffWriter writer(Path("empty.h5")); }
  EXPECT_THAT(std::string(Open(Path("empty.h5")).status().message()),
              AllOf(HasSubstr("empty.h5: examples"), HasSubstr("TensorFlow Federated")));
  {
    TffWriter writer(Path("other.h5"));
    writer.Write<int32_t>("a", "tokens", H5T_NATIVE_INT32, {1}, {1});
  }
  EXPECT_THAT(std::string(Open(Path("other.h5")).status().message()),
              AllOf(HasSubstr("examples/a has tokens"), HasSubstr("snippets")));
  {
    TffWriter writer(Path("short.h5"));
    writer.WriteDigits("a", 2, 0, {1});
  }
  EXPECT_THAT(std::string(Open(Path("short.h5")).status().message()),
              AllOf(HasSubstr("short.h5: examples/a/label"), HasSubstr("each of 2 rows")));
  EXPECT_THAT(std::string(Open(folder_.Write("no.h5", "hello")).status().message()),
              HasSubstr("no.h5 is damaged or no HDF5 file"));
}

TEST_F(Hdf5, RefusesADataSetThatClaimsMoreThanItHolds) {
  const std::string path = Path("huge.h5");
  {
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hsize_t shape[] = {3000000, 28, 28}, chunk[] = {1, 28, 28};
    const hid_t space = H5Screate_simple(3, shape, nullptr), made = H5Pcreate(H5P_DATASET_CREATE),
                links = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_chunk(made, 3, chunk);
    H5Pset_create_intermediate_group(links, 1);
    H5Dclose(
        H5Dcreate2(file, "examples/a/pixels", H5T_NATIVE_FLOAT, space, links, made, H5P_DEFAULT));
    H5Fclose(file);
  }
  EXPECT_THAT(std::string(Open(path).status().message()),
              AllOf(HasSubstr("examples/a/pixels"), HasSubstr("do not unpack to 9408000000")));
}

// Other damage is not tried: version 1.10 of the library itself can crash on it
// (docs/guides/data.md).
TEST_F(Hdf5, AFileThatIsCutShortIsRefusedInOneLine) {
  const std::string path = Path("d.h5");
  {
    TffWriter writer(path);
    writer.WriteDigits("a", 3, 0, {1, 0, 1});
  }
  const std::string whole = *ReadFile(path);
  for (size_t part = 0; part < 60; ++part) {
    // The library knows an open file by its name, so each has its own.
    const std::string cut =
        folder_.Write(absl::StrCat("d", part, ".h5"), whole.substr(0, whole.size() * part / 60));
    const absl::Status status = Open(cut).status();
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(folder_.path()), testing::Not(HasSubstr("\n"))));
  }
}

}  // namespace
}  // namespace macaw::data
