#include <gmock/gmock.h>

#include <limits>
#include <numeric>

#include "data/npy.h"
#include "data/stored_array.h"
#include "data/zip.h"
#include "tests/data/npz_files.h"
#include "tests/data/test_files.h"

namespace macaw::data {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<uint8_t> Count(size_t n) {
  std::vector<uint8_t> values(n);
  std::iota(values.begin(), values.end(), uint8_t{0});
  return values;
}
std::vector<int> BytesIn(const RowCopy& row) {
  std::vector<int> bytes;
  for (const char byte : row.features) bytes.push_back(static_cast<uint8_t>(byte));
  return bytes;
}
ZipFile Labels(const std::vector<int64_t>& labels, const std::string& name = "y") {
  return {name + ".npy", NpyOf("<i8", {labels.size()}, labels)};
}
ZipFile Bytes(const std::vector<uint64_t>& shape, const std::string& name = "x") {
  const uint64_t n = std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
  return {name + ".npy", NpyOf("|u1", shape, Count(n))};
}

class Npz : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::vector<ZipFile>& files,
                                                Packing packing = Packing::kStored,
                                                DataOptions options = {.test_fraction = 0}) {
    options.source = "npz";
    options.path = folder_.Write("mine.npz", ZipBytes(files, packing));
    return OpenDataset(options, {.clients = 1});
  }
  std::string Refusal(const std::vector<ZipFile>& files) {
    return std::string(Open(files).status().message());
  }
  TemporaryFolder folder_;
};

TEST_F(Npz, ReadsStoredDeflatedAnd64BitArchivesAlike) {
  const std::vector<ZipFile> files = {Bytes({3, 2, 2}), Labels({0, 1, 0})};
  const auto stored = Open(files);
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_THAT((*stored)->info().input_shape, ElementsAre(1, 2, 2));  // grey images
  EXPECT_EQ((*stored)->info().classes, 2);
  EXPECT_DOUBLE_EQ(*(*stored)->info().transform.scale, 1 / 255.0);
  const auto rows = Copy(**stored, 0, Split::kTrain);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_THAT(BytesIn(rows[1]), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(rows[1].label, 1);
  for (const Packing packing : {Packing::kDeflated, Packing::kWide}) {
    const auto again = Open(files, packing);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(CopyAll(**again), CopyAll(**stored));
  }
}

TEST_F(Npz, TakesKerasNamesAndItsTestSet) {
  const auto dataset =
      Open({Bytes({4, 2, 2}, "x_train"), Labels({0, 1, 2, 0}, "y_train"),
            Bytes({2, 2, 2}, "x_test"), Labels({2, 1}, "y_test"), Labels({1}, "extra")});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().train_examples, 4u);
  ASSERT_EQ((*dataset)->CentralTest().size(), 2u);
  EXPECT_EQ(Copy((*dataset)->CentralTest())[0].label, 2);
  EXPECT_THAT((*dataset)->info().notes, Contains("not read: \"extra\""));
}

TEST_F(Npz, LabelsThatCountFromOneAreNoted) {
  const auto dataset = Open({Bytes({4, 2, 2}, "x"), Labels({1, 2, 3, 1}, "y")});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->info().notes,
              Contains(HasSubstr("no row has class 0: labels are 1 to 3")));
  const auto usual = Open({Bytes({4, 2, 2}, "x"), Labels({0, 2, 3, 1}, "y")});
  ASSERT_TRUE(usual.ok()) << usual.status();
  EXPECT_THAT((*usual)->info().notes, Not(Contains(HasSubstr("class 0"))));
}

TEST_F(Npz, ColumnsThatFloat32HardlyTellsApartAreNoted) {
  const auto notes = [&](double begin, uint64_t columns) {
    std::vector<double> values;
    for (uint64_t i = 0; i < 60 * columns; ++i) {
      const auto row = static_cast<double>(i / columns);
      values.push_back(i % columns == columns - 2 ? begin + 10 * row : row);
    }
    const auto dataset =
        Open({{"x.npy", NpyOf("<f8", {60, columns}, values)}, Labels(std::vector<int64_t>(60, 0))});
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return (*dataset)->info().notes;
  };
  EXPECT_THAT(notes(1.7e9, 3),
              Contains(AllOf(HasSubstr("column 1 of x has numbers from 1700000000 to 1700000590"),
                             HasSubstr("steps of 128 there"))));
  EXPECT_THAT(notes(1.7e9, 1500), Contains(HasSubstr("column 1498 of x")));
  EXPECT_THAT(notes(0, 3), Not(Contains(HasSubstr("float32"))));
}

TEST_F(Npz, TargetsThatFloat32HardlyTellsApartAreNoted) {
  const auto notes = [&](double begin) {
    std::vector<double> values;
    for (int i = 0; i < 60; ++i) values.push_back(begin + i);
    const auto dataset = Open({Bytes({60, 2}), {"y.npy", NpyOf<double>("<f8", {60}, values)}});
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return (*dataset)->info().notes;
  };
  EXPECT_THAT(notes(1.7e9), Contains(AllOf(HasSubstr("y has numbers from 1700000000 to 1700000059"),
                                           HasSubstr("steps of 128 there"))));
  EXPECT_THAT(notes(0), Not(Contains(HasSubstr("float32"))));
}

TEST_F(Npz, NumbersOfClientsMayBeHashesOfAll64Bits) {
  const std::vector<uint64_t> ids = {UINT64_MAX, uint64_t{1} << 63, 7, UINT64_MAX};
  const DataOptions options{
      .source = "npz",
      .path = folder_.Write("u.npz", ZipBytes({Bytes({4, 3}),
                                               Labels({0, 1, 1, 0}),
                                               {"client.npy", NpyOf<uint64_t>("<u8", {4}, ids)}})),
      .test_fraction = 0};
  const auto dataset = OpenDataset(options, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ((*dataset)->info().clients, 3u);
  EXPECT_EQ((*dataset)->ClientName(ClientId(0)), "18446744073709551615");
  EXPECT_EQ((*dataset)->ClientName(ClientId(1)), "9223372036854775808");
  EXPECT_EQ((*dataset)->ClientName(ClientId(2)), "7");
}

TEST_F(Npz, AClientForEachRowIsTheNaturalPartition) {
  const ZipFile numbers = {"client.npy", NpyOf<int32_t>("<i4", {4}, {70, 8, 70, 9})};
  // Three characters of four bytes each, padded with zeros.
  std::string text;
  for (const uint32_t c :
       std::initializer_list<uint32_t>{'a', 0, 0, 0xE9, 'b', 0, 'a', 0, 0, 'z', 'z', 'z'})
    text += Little(c);
  const ZipFile words = {"client.npy", NpyBytes("<U3", {4}, text)};
  DataOptions options{.source = "npz", .test_fraction = 0};
  for (const auto& [client, names] : {std::pair(numbers, std::vector<std::string>{"70", "8", "9"}),
                                      {words, {"a", "\u00E9b", "zzz"}}}) {
    options.path =
        folder_.Write("c.npz", ZipBytes({Bytes({4, 3}), Labels({0, 1, 1, 0}), client,
                                         Bytes({2, 3}, "x_test"), Labels({0, 1}, "y_test")}));
    const auto dataset = OpenDataset(options, {});
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    ASSERT_EQ((*dataset)->info().clients, 3u);
    for (uint64_t c = 0; c < 3; ++c) EXPECT_EQ((*dataset)->ClientName(ClientId(c)), names[c]);
    EXPECT_THAT(BytesIn(Copy(**dataset, 0, Split::kTrain)[1]), ElementsAre(6, 7, 8));
    EXPECT_EQ((*dataset)->Examples(ClientId(0), Split::kTest), 0u);  // nobody's
    EXPECT_EQ((*dataset)->CentralTest().size(), 2u);
  }
  options.path =
      folder_.Write("t.npz", ZipBytes({Bytes({4, 3}),
                                       Labels({0, 1, 1, 0}),
                                       numbers,
                                       Bytes({2, 3}, "x_test"),
                                       Labels({0, 1}, "y_test"),
                                       {"client_test.npy", NpyOf<int32_t>("<i4", {2}, {8, 100})}}));
  const auto tested = OpenDataset(options, {});
  ASSERT_TRUE(tested.ok()) << tested.status();
  EXPECT_EQ((*tested)->info().clients, 4u);
  EXPECT_EQ((*tested)->Examples(ClientId(1), Split::kTest), 1u);
  EXPECT_EQ((*tested)->Examples(ClientId(3), Split::kTrain), 0u);
}

TEST_F(Npz, NamesOfClientsAreUtf8) {
  const auto refusal = [&](const ZipFile& client) {
    const std::string path =
        folder_.Write("n.npz", ZipBytes({Bytes({2, 3}), Labels({0, 1}), client}));
    return std::string(OpenDataset({.source = "npz", .path = path}, {}).status().message());
  };
  EXPECT_THAT(refusal({"client.npy", NpyOf<double>("<f8", {2}, {1, 2})}),
              HasSubstr("is float64 of shape [2]; it must have a whole number or a text"));
  EXPECT_THAT(refusal({"client.npy", NpyBytes("|S3", {2}, std::string("ann\0\0\0", 6))}),
              AllOf(HasSubstr("client"), HasSubstr("no name in row 1")));
  EXPECT_THAT(refusal({"client.npy", NpyBytes("|S3", {2}, "annJ\xE9 ")}),
              AllOf(HasSubstr("client"), HasSubstr("row 1"), HasSubstr("latin-1")));
  // A surrogate alone, and a number that is no character.
  for (const uint32_t code : {0xD800u, 0x110000u}) {
    EXPECT_THAT(refusal({"client.npy", NpyBytes("<U1", {2}, Little(uint32_t{'a'}) + Little(code))}),
                AllOf(HasSubstr("client"), HasSubstr("row 1"), HasSubstr("UTF-8")));
  }
}

TEST_F(Npz, ConvertsDoublesAndTakesIntegersForTokens) {
  const auto doubles = Open({{"x.npy", NpyOf<double>("<f8", {2, 2}, {0.1, -2, 3, 4})},
                             {"y.npy", NpyOf<float>("<f4", {2, 1}, {0.5F, -1})}});
  ASSERT_TRUE(doubles.ok()) << doubles.status();
  EXPECT_THAT(Floats(Copy(**doubles, 0, Split::kTrain)[0]), ElementsAre(0.1F, -2));
  EXPECT_EQ(Copy(**doubles, 0, Split::kTrain)[1].target, -1);
  EXPECT_EQ((*doubles)->info().classes, 0);
  const auto tokens =
      Open({{"x.npy", NpyOf<int64_t>("<i8", {2, 3}, {1, 2, 3, 4, 5, 6})}, Labels({1, 0})});
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ((*tokens)->info().feature_type, FeatureType::kI32);
  const RowCopy row = Copy(**tokens, 0, Split::kTrain)[1];
  EXPECT_EQ(row.features, Little<int32_t>(4) + Little<int32_t>(5) + Little<int32_t>(6));
}

TEST_F(Npz, TurnsChannelsLastToChannelsFirst) {
  const auto dataset = Open({Bytes({2, 5, 1, 3}), Labels({0, 1})});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->info().input_shape, ElementsAre(3, 5, 1));
  EXPECT_THAT(BytesIn(Copy(**dataset, 0, Split::kTrain)[0]),
              ElementsAre(0, 3, 6, 9, 12, 1, 4, 7, 10, 13, 2, 5, 8, 11, 14));
  EXPECT_THAT((*dataset)->info().notes, Contains(HasSubstr("channels last")));
}

TEST_F(Npz, ReadsATestSetFromASecondFile) {
  const std::string test = folder_.Write("test.npz", ZipBytes({Bytes({1, 3}), Labels({1})}));
  const auto dataset = Open({Bytes({2, 3}), Labels({0, 1})}, Packing::kStored, {.test_path = test});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().train_examples, 2u);
  EXPECT_EQ((*dataset)->CentralTest().size(), 1u);
}

TEST_F(Npz, RefusesWhatItCannotReadByTheArraysName) {
  const auto with = [](const std::string& npy) {
    return std::vector<ZipFile>{{"x.npy", npy}, Labels({0, 1})};
  };
  EXPECT_THAT(Refusal({Labels({1}, "labels")}),
              AllOf(HasSubstr("mine.npz has no array x"), HasSubstr("\"labels\"")));
  EXPECT_THAT(Refusal({Bytes({2, 2})}), HasSubstr("no array y"));
  EXPECT_THAT(Refusal(with(NpyBytes("<f2", {2, 1}, "abcd"))),
              AllOf(HasSubstr("mine.npz: x"), HasSubstr("<f2")));
  EXPECT_THAT(Refusal(with(NpyBytes(">f4", {2, 1}, "abcdefgh"))), HasSubstr(">f4"));
  EXPECT_THAT(Refusal(with(NpyBytes("|O", {2, 1}, "ab"))), HasSubstr("|O"));
  EXPECT_THAT(Refusal(with(NpyBytes("|b1", {2, 1}, std::string(2, '\1')))), HasSubstr("bool"));
  EXPECT_THAT(Refusal(with(NpyBytes("|u1", {2, 1}, "ab", "'fortran_order': True"))),
              HasSubstr("ascontiguousarray"));
  EXPECT_THAT(Refusal(with(NpyBytes("|u1", {2, 9}, "ab"))), HasSubstr("needs 18 bytes"));
  EXPECT_THAT(Refusal(with(NpyBytes("|u1", {uint64_t{1} << 40, uint64_t{1} << 40}, "ab"))),
              HasSubstr("impossible shape"));
  EXPECT_THAT(Refusal(with(NpyBytes("|u1", {2}, "ab"))), HasSubstr("at least one axis"));
  EXPECT_THAT(Refusal(with(NpyBytes("|u1", {0, 2}, ""))), HasSubstr("none of them 0"));
  EXPECT_THAT(Refusal(with("rubbish, and so on")), HasSubstr("no .npy array"));
  EXPECT_THAT(Refusal({Bytes({3, 2}), Labels({0, 1})}), HasSubstr("each of 3 rows"));
  EXPECT_THAT(Refusal({Bytes({2, 2}), Labels({0, -1})}), HasSubstr("label -1 in row 1"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(Refusal(with(NpyOf<float>("<f4", {2, 1}, {1, nan}))),
              HasSubstr("in row 1 that is not finite"));
  EXPECT_THAT(Refusal(with(NpyOf<double>("<f8", {2, 1}, {1e300, 0}))),
              HasSubstr("in row 0 that is beyond float32"));
  EXPECT_THAT(Refusal({Bytes({2, 2}), {"y.npy", NpyOf<double>("<f8", {2}, {0, 1e39})}}),
              HasSubstr("has a label in row 1 that is beyond float32"));
  EXPECT_THAT(Refusal(with(NpyOf<int64_t>("<i8", {2, 1}, {1, -7}))), HasSubstr("no token"));
  EXPECT_THAT(
      Refusal({Bytes({2, 2}), Labels({0, 1}), Bytes({2, 3}, "x_test"), Labels({0, 1}, "y_test")}),
      HasSubstr("rows of [3], but those for training are [2]"));
}

TEST_F(Npz, RefusesDamagedMembersBeforeItMakesRoomForThem) {
  ZipFile x = Bytes({2, 2});
  const auto refusal = [&](Packing packing = Packing::kStored) {
    return std::string(Open({x, Labels({0, 1})}, packing).status().message());
  };
  x.claimed = uint64_t{1} << 31;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("\"x.npy\""), HasSubstr("do not unpack to 2147483648")));
  EXPECT_THAT(refusal(Packing::kDeflated), HasSubstr("do not unpack to 2147483648"));
  x.claimed = uint64_t{1} << 60;
  EXPECT_THAT(refusal(Packing::kWide), HasSubstr("do not unpack to"));
  x.claimed = x.bytes.size() + 1;
  EXPECT_THAT(refusal(Packing::kDeflated), HasSubstr("bad deflate data"));
  x.claimed = 0;
  x.crc_error = 1;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("\"x.npy\""), HasSubstr("checksum")));
  x.crc_error = 0;
  x.flags = 1;
  EXPECT_THAT(refusal(), HasSubstr("encrypted"));
  x.flags = 0;
  x.method = 12;
  EXPECT_THAT(refusal(), HasSubstr("method 12"));
  const std::string whole = ZipBytes({Bytes({2, 2}), Labels({0, 1})});
  const std::string path = folder_.Write("cut.npz", whole.substr(0, whole.size() / 2));
  EXPECT_THAT(OpenDataset({.source = "npz", .path = path}, {}).status().message(),
              HasSubstr("cut.npz is cut short"));
}

TEST(Npy, ReadsVersionsOneToThreeAndNoOther) {
  for (const uint8_t version : {1, 2, 3}) {
    const std::string bytes =
        NpyBytes("<i2", {2}, std::string("\1\0\xFF\xFF", 4), "'fortran_order': False", version);
    const auto array = ParseNpy(bytes, "a");
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(IntegerAt(*array, 0), 1);
    EXPECT_EQ(IntegerAt(*array, 1), -1);
    EXPECT_EQ(array->TypeName(), "int16");
  }
  EXPECT_FALSE(ParseNpy(NpyBytes("<i2", {0}, "", "'fortran_order': False", 4), "a").ok());
}

TEST(Npy, HasNoShapeFromADamagedHeader) {
  const std::string good = NpyBytes("|u1", {2}, "ab");
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{"(2,)", "(2 )"},
                                                                                 {"(2,)", "(-2)"},
                                                                                 {"(2,)", "(2;)"},
                                                                                 {"shape", "shapf"},
                                                                                 {"False", "Falsy"},
                                                                                 {"{", "["}}) {
    std::string bytes = good;
    bytes.replace(bytes.find(from), from.size(), to);
    if (to == "(2 )") {
      EXPECT_TRUE(ParseNpy(bytes, "a").ok());  // a number in brackets
    } else {
      EXPECT_FALSE(ParseNpy(bytes, "a").ok()) << to;
    }
  }
}

}  // namespace
}  // namespace macaw::data
