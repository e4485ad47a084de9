#include "data/detect.h"

#include <gmock/gmock.h>

#include "data/prepared.h"
#include "tests/data/npz_files.h"
#include "tests/data/test_files.h"

namespace macaw::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Detect : public testing::Test {
 protected:
  std::string Source(const std::string& name, const std::string& bytes,
                     const DataOptions& given = {}) {
    const auto source = DetectSource(folder_.Write(name, bytes), given);
    return source.ok() ? *source : absl::StrCat("error: ", source.status().message());
  }
  TemporaryFolder folder_;
};

TEST_F(Detect, RecognisesEachFormatWhateverTheFilesName) {
  EXPECT_EQ(Source("a", IdxImages(3)), "idx");
  EXPECT_EQ(Source("b.gz", Gzip(IdxImages(3))), "idx");
  EXPECT_EQ(Source("c.txt", "# made up\n+1 3:0.5 7:1\n"), "libsvm");
  EXPECT_EQ(Source("c.gz", Gzip("-1 1:1\n")), "libsvm");
  EXPECT_EQ(Source("d", "\xEF\xBB\xBFuser;x;y\nann;1;2\n"), "csv");
  EXPECT_EQ(Source("e.tsv", "1\t2\t3\n"), "csv");
  EXPECT_EQ(Source("t.csv", "who,x\n\"Roe, Jane\",1\n"), "csv");
  std::string wide = "1";  // two lines of it are longer than what is read
  while (wide.size() < 40000) wide += ",0";
  EXPECT_EQ(Source("w.csv", absl::StrCat(wide, "\n", wide, "\n")), "csv");
  EXPECT_EQ(Source("f", R"( {"users": ["a"], "user_data": {}})"), "leaf");
  EXPECT_EQ(Source("n", ZipBytes({{"x.npy", NpyOf<int32_t>("<i4", {1, 1}, {1})}})), "npz");
  EXPECT_EQ(Source("g.bin", std::string(3073, '\1')), "cifar10");
  EXPECT_EQ(Source("h.bin", std::string(2 * 3074, '\1')), "cifar100");
}

TEST_F(Detect, RecognisesFoldersByTheirContents) {
  folder_.Write("mnist/t10k-images-idx3-ubyte.gz", "");
  folder_.Write("leaf/train/a.json", "");
  folder_.Write("c10/data_batch_1.bin", "");
  folder_.Write("c100/train.bin", "");
  EXPECT_EQ(*DetectSource(folder_.path() + "/mnist"), "idx");
  EXPECT_EQ(*DetectSource(folder_.path() + "/leaf"), "leaf");
  EXPECT_EQ(*DetectSource(folder_.path() + "/c10"), "cifar10");
  EXPECT_EQ(*DetectSource(folder_.path() + "/c100"), "cifar100");
}

TEST_F(Detect, SaysWhatAFileIsInsteadAndWhatToDo) {
  EXPECT_THAT(Source("a.npy", absl::StrCat("\x93NUMPY", std::string(90, '\0'))),
              AllOf(HasSubstr("a.npy"), HasSubstr("numpy.savez")));
  EXPECT_THAT(Source("net.pt", ZipBytes({{"net/data.pkl", "x"}})), HasSubstr("PyTorch"));
  EXPECT_THAT(Source("a.parquet", "PAR1xxxx"), HasSubstr("CSV"));
  EXPECT_THAT(Source("labels", IdxLabels(3, 2)), HasSubstr("images beside it"));
  EXPECT_THAT(Source("split.json", R"({"0": [1, 2]})"), HasSubstr("not LEAF's"));
  EXPECT_THAT(Source("play.txt", "To be or not to be\n"), HasSubstr("LEAF's JSON"));
  EXPECT_THAT(Source("speech.txt", "Friends, Romans, countrymen,\nlend me your ears\n"),
              HasSubstr("neither rows of cells"));
  EXPECT_THAT(Source("noise", std::string("\1\2\0\3", 4)), HasSubstr("no format that is known"));
  EXPECT_THAT(Source("nothing", ""), HasSubstr("is empty"));
  folder_.Write("folder/readme", "x");
  EXPECT_THAT(std::string(DetectSource(folder_.path() + "/folder").status().message()),
              HasSubstr("is a folder without"));
  EXPECT_THAT(std::string(DetectSource("/nope").status().message()),
              HasSubstr("/nope does not exist"));
}

TEST_F(Detect, TellsTablesWhateverEndsTheirLinesAndStandsInTheirQuotes) {
  EXPECT_EQ(Source("cr.csv", "a,b\r1,2\r3,4\r"), "csv");
  EXPECT_EQ(Source("cr.svm", "1 1:2\r-1 2:3\r"), "libsvm");
  EXPECT_EQ(Source("quoted.csv", "\"a\nb, c\";d\n1;2\n"), "csv");
}

TEST_F(Detect, ASeparatorThatIsGivenMakesATableOfIt) {
  const std::string piped = "a|b|user|label\n1|2|ann|x\n3|4|bob|y\n";
  EXPECT_EQ(Source("pipe.csv", piped, {.separator = "|"}), "csv");
  EXPECT_THAT(Source("pipe.csv", piped), AllOf(HasSubstr("pipe.csv"), HasSubstr("data.separator"),
                                               HasSubstr("data.source = \"csv\"")));
  EXPECT_EQ(Source("blanks.csv", "a b\n1 2\n", {.separator = "tab"}), "csv");  // which refuses it
  EXPECT_EQ(Source("r.svm", "1 1:2\n", {.separator = "|"}), "libsvm");
  EXPECT_EQ(Source("l.json", R"({"users": ["a"], "user_data": {}})", {.separator = "|"}), "leaf");
}

TEST_F(Detect, ATableWithADamagedSecondLineIsATable) {
  EXPECT_EQ(Source("ragged.csv", "a,b,y\n1,2\n3,4,0\n5,6,1\n"), "csv");
  EXPECT_EQ(Source("quote.csv", "a,b,y\n\"1,2,0\n3,4,0\n5,6,1\n"), "csv");
  EXPECT_EQ(Source("half.csv", "a,b,y\n1,2\n3\n5,6,1\n7,8,0\n"), "csv");
  const std::string mostly = "a,b,y\n1,2\n3\n5\n7,8,0\n";
  EXPECT_EQ(Source("mostly.csv", mostly, {.unreadable_rows = 0.8}), "csv");
  EXPECT_THAT(Source("mostly.csv", "\n" + mostly),
              AllOf(HasSubstr("first line has 3 cells"), HasSubstr("line 3"),
                    HasSubstr("data.source = \"csv\"")));
  EXPECT_EQ(Source("damaged.svm", "oops\n1 1:2\n-1 2:3\n"), "libsvm");
}

TEST_F(Detect, NamesEncodingsAndWellKnownFiles) {
  std::string little = "\xFF\xFE", big;
  for (const char c : std::string("a,b\n1,2\n")) {
    little += std::string(1, c) + '\0';
    big += '\0' + std::string(1, c);
  }
  EXPECT_THAT(Source("l.csv", little), AllOf(HasSubstr("l.csv"), HasSubstr("iconv -f UTF-16LE")));
  EXPECT_THAT(Source("b.csv", big), HasSubstr("iconv -f UTF-16BE"));
  EXPECT_THAT(
      Source(
          "sent.csv",
          "\"4\",\"3\",\"Mon May 11 03:17:40 UTC 2009\",\"kindle2\",\"tpryan\",\"Ok, caf\xE9\"\n"),
      HasSubstr("Sentiment140"));
  EXPECT_THAT(Source("attr.txt", "202599\n5_o_Clock_Shadow Young \n000001.jpg -1 1\n"),
              HasSubstr("CelebA"));
  EXPECT_THAT(Source("identity.txt", "000001.jpg 2880\n000002.jpg 2937\n"), HasSubstr("pictures"));
  EXPECT_EQ(Source("attr.csv", "image_id,5_o_Clock_Shadow,Young\n000001.jpg,-1,1\n"), "csv");
}

TEST_F(Detect, RecognisesAPreparedFile) {
  const auto dataset = OpenDataset({.source = "synthetic", .synthetic = {.clients = 2}}, {});
  ASSERT_TRUE(dataset.ok());
  const std::string path = folder_.path() + "/anything";
  ASSERT_TRUE(WritePrepared(**dataset, path).ok());
  EXPECT_EQ(*DetectSource(path), "prepared");
}

}  // namespace
}  // namespace macaw::data
