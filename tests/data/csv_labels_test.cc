// Whole numbers as labels: which classes they are, and what data.class_names says of them.
#include <gmock/gmock.h>

#include <algorithm>
#include <iterator>

#include "data/prepared.h"
#include "tests/data/csv_fixture.h"

namespace macaw::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class NumberLabels : public CsvFixture {
 protected:
  // The same labels as a table and as LIBSVM's rows.
  std::vector<DataOptions> BothForms(const std::vector<std::string>& labels,
                                     const std::vector<std::string>& class_names) {
    std::string table = "x,label\n", sparse;
    for (const std::string& label : labels) {
      absl::StrAppend(&table, "1,", label, "\n");
      absl::StrAppend(&sparse, label, " 1:1\n");
    }
    DataOptions csv = With(table), libsvm = csv;
    libsvm.source = "libsvm";
    libsvm.path = folder_.Write("a.svm", sparse);
    csv.class_names = libsvm.class_names = class_names;
    return {csv, libsvm};
  }
  std::vector<int32_t> ClassesOf(const DataOptions& options) {
    std::vector<int32_t> classes;
    const auto dataset = Whole(options);
    if (dataset == nullptr) return classes;
    for (const RowCopy& row : Copy(*dataset, 0, Split::kTrain)) classes.push_back(row.label);
    return classes;
  }
  Digest DigestOfData(DataOptions options, const std::vector<std::string>& class_names) {
    options.class_names = class_names;
    return Whole(options)->info().digest;
  }
  std::string WhyNot(const DataOptions& options) {
    return std::string(OpenDataset(options, {.clients = 1}).status().message());
  }
};

TEST_F(NumberLabels, NamesThatAreTheLabelsDecideTheirOrder) {
  for (const DataOptions& options : BothForms({"1", "2", "1"}, {"2", "1"})) {
    EXPECT_THAT(ClassesOf(options), ElementsAre(1, 0, 1)) << options.source;
    EXPECT_THAT(Whole(options)->info().class_names, ElementsAre("2", "1")) << options.source;
    EXPECT_NE(DigestOfData(options, {"2", "1"}), DigestOfData(options, {})) << options.source;
    // What a run writes of its data keeps them the same.
    EXPECT_EQ(DigestOfData(options, {"1", "2"}), DigestOfData(options, {})) << options.source;
  }
  for (const DataOptions& options : BothForms({"0", "1"}, {"1", "0"}))
    EXPECT_THAT(ClassesOf(options), ElementsAre(1, 0)) << options.source;
  for (const DataOptions& options : BothForms({"2", "10"}, {"2", "10"}))
    EXPECT_EQ(DigestOfData(options, {"2", "10"}), DigestOfData(options, {})) << options.source;
}

TEST_F(NumberLabels, NamesThatAreTheLabelsAndMoreDecideTheirNumber) {
  for (const DataOptions& options : BothForms({"5", "7"}, {"5", "6", "7"})) {
    EXPECT_THAT(ClassesOf(options), ElementsAre(0, 2)) << options.source;
    EXPECT_EQ(Whole(options)->info().classes, 3) << options.source;
    EXPECT_THAT(Whole(options)->info().class_names, ElementsAre("5", "6", "7")) << options.source;
  }
  for (DataOptions& options : BothForms({"0", "2"}, {"0", "1", "2"})) {
    EXPECT_THAT(ClassesOf(options), ElementsAre(0, 2)) << options.source;
    EXPECT_THAT(Whole(options)->info().class_names, IsEmpty()) << options.source;
    options.classes = 2;
    EXPECT_THAT(WhyNot(options), AllOf(HasSubstr("3 labels"), HasSubstr("data.classes is 2")));
  }
}

// A device without some of the classes numbers the others as all do.
TEST_F(NumberLabels, DataClassesNumberThemWhicheverRowsAreHere) {
  for (DataOptions& options : BothForms({"1", "3", "2"}, {})) {
    EXPECT_THAT(ClassesOf(options), ElementsAre(0, 2, 1)) << options.source;
    options.classes = 3;
    EXPECT_THAT(WhyNot(options), AllOf(HasSubstr(options.path), HasSubstr("data.classes is 3"),
                                       HasSubstr("data.class_names = [\"1\", \"2\", \"3\"]")));
    const Digest sorted = DigestOfData(BothForms({"1", "3", "2"}, {})[0], {});
    options.class_names = {"1", "2", "3"};
    EXPECT_THAT(ClassesOf(options), ElementsAre(0, 2, 1)) << options.source;
    if (options.source == "csv") {
      EXPECT_EQ(Whole(options)->info().digest, sorted);
    }
  }
  for (DataOptions& options : BothForms({"1", "2"}, {"1", "2", "3"})) {
    options.classes = 3;
    EXPECT_THAT(ClassesOf(options), ElementsAre(0, 1)) << options.source;
  }
  for (DataOptions& options : BothForms({"-1", "0"}, {})) {
    options.classes = 2;
    EXPECT_THAT(WhyNot(options), HasSubstr("data.class_names = [\"-1\", \"0\"]"));
  }
  for (DataOptions& options : BothForms({"-1", "1"}, {})) {
    options.classes = 2;
    EXPECT_THAT(ClassesOf(options), ElementsAre(0, 1)) << options.source;
  }
}

TEST_F(NumberLabels, WithoutALabel0AreNotedWhereDataClassesSayThatTheyCountFrom0) {
  const auto notes = [&](const std::vector<std::string>& labels,
                         const std::vector<std::string>& class_names) {
    std::vector<std::string> all;
    for (DataOptions& options : BothForms(labels, class_names)) {
      options.classes = 3;
      std::ranges::copy(Whole(options)->info().notes, std::back_inserter(all));
    }
    return all;
  };
  EXPECT_THAT(notes({"1", "2"}, {}),
              ElementsAre(HasSubstr("no row has the label 0"), HasSubstr("data.class_names")));
  EXPECT_THAT(notes({"0", "2"}, {}), IsEmpty());
  EXPECT_THAT(notes({"1", "2"}, {"1", "2", "3"}), IsEmpty());
}

TEST_F(NumberLabels, OtherNamesChangeNoClass) {
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"healthy", "ill"}, {"3", "4"}}) {
    for (const DataOptions& options : BothForms({"2", "1", "2"}, names)) {
      EXPECT_THAT(ClassesOf(options), ElementsAre(1, 0, 1)) << options.source;
      EXPECT_EQ(DigestOfData(options, names), DigestOfData(options, {})) << options.source;
    }
  }
}

TEST_F(NumberLabels, OtherNamesArePreparedInTheirPlaces) {
  const auto dataset = Whole(With("x,label\n1,2\n2,1\n"));
  const absl::StatusOr<std::vector<std::string>> names =
      NamesOfClasses({"healthy", "ill"}, dataset->info());
  ASSERT_TRUE(names.ok()) << names.status();
  const std::string path = folder_.path() + "/p.safetensors";
  ASSERT_TRUE(WritePrepared(*dataset, path, *names).ok());
  const DatasetInfo info = (*OpenDataset({.source = "prepared", .path = path}, {}))->info();
  EXPECT_THAT(info.class_names, ElementsAre("healthy", "ill"));

  EXPECT_THAT(*NamesOfClasses({}, info), ElementsAre("healthy", "ill"));
  EXPECT_THAT(*NamesOfClasses({"well", "ill"}, info), ElementsAre("well", "ill"));
  EXPECT_THAT(std::string(NamesOfClasses({"a", "b", "c"}, info).status().message()),
              HasSubstr("data.class_names has 3 names, but csv has 2 classes"));
  // What is stored does not follow the names.
  EXPECT_THAT(std::string(NamesOfClasses({"ill", "healthy"}, info).status().message()),
              AllOf(HasSubstr("calls class 0 of csv \"ill\""), HasSubstr("class 1"),
                    HasSubstr("(healthy, ill)")));
}

TEST_F(NumberLabels, SomeLabelsAmongTheNamesAreRefused) {
  for (const DataOptions& options : BothForms({"0", "1", "2"}, {"1", "2", "3"}))
    EXPECT_THAT(WhyNot(options), AllOf(HasSubstr(options.path), HasSubstr("the label 0"),
                                       HasSubstr("data.class_names (1, 2, 3)")));
  for (const DataOptions& options : BothForms({"1", "2"}, {"1", "2", "other"}))
    EXPECT_THAT(WhyNot(options),
                AllOf(HasSubstr("\"other\" among numbers"), HasSubstr("list all")));
  for (const DataOptions& options : BothForms({"1", "2"}, {"1", "2", "2.0"}))
    EXPECT_THAT(WhyNot(options), HasSubstr("\"2.0\" twice"));
  DataOptions words = With("x,label\n1,x\n2,y\n");
  words.class_names = {"x", "x", "y"};
  EXPECT_THAT(WhyNot(words), HasSubstr("\"x\" twice"));
}

TEST_F(NumberLabels, LargeWholeNumbersAreNoTargetsUntilItIsSaid) {
  for (DataOptions& options : BothForms({"3000000001", "3000000000", "1"}, {})) {
    EXPECT_THAT(WhyNot(options), AllOf(HasSubstr(options.path), HasSubstr("3000000001"),
                                       HasSubstr("data.labels = \"numbers\""),
                                       HasSubstr("data.class_names"), HasSubstr("words of them")));
    options.class_names = {"1", "3000000000", "3000000001"};
    EXPECT_THAT(ClassesOf(options), ElementsAre(2, 1, 0)) << options.source;
    options.class_names.clear();
    options.labels = "numbers";
    EXPECT_EQ(Whole(options)->info().classes, 0) << options.source;
    EXPECT_EQ(Copy(*Whole(options), 0, Split::kTrain)[2].target, 1.0F) << options.source;
  }
  // The largest that are classes as they are, and the smallest.
  for (const DataOptions& options : BothForms({"2147483647", "-2147483647"}, {}))
    EXPECT_THAT(ClassesOf(options), ElementsAre(1, 0)) << options.source;
  for (const DataOptions& options : BothForms({"-3000000000", "1"}, {}))
    EXPECT_THAT(WhyNot(options), HasSubstr("-3000000000")) << options.source;
}

TEST_F(NumberLabels, WholeNumbersThatFloat64DoesNotHaveAreNoClasses) {
  const std::vector<std::string> ids = {"9007199254740993", "9007199254740992"};
  for (const DataOptions& options : BothForms(ids, ids))
    EXPECT_THAT(WhyNot(options), AllOf(HasSubstr("words of them"), HasSubstr("\"numbers\""),
                                       Not(HasSubstr("data.class_names"))));
  // Measurements in powers of ten, and with fractions, stay numbers to predict.
  for (const DataOptions& options : BothForms({"6.5e23", "1e24"}, {}))
    EXPECT_EQ(Whole(options)->info().classes, 0) << options.source;
  for (const DataOptions& options : BothForms({"3000000000", "0.5"}, {}))
    EXPECT_EQ(Whole(options)->info().classes, 0) << options.source;
}

TEST_F(NumberLabels, LibsvmsWholeNumbersAreTargetsWhereLabelsAreNumbers) {
  DataOptions options = BothForms({"9", "15", "9"}, {}).back();
  const auto classes = Whole(options);
  options.labels = "numbers";
  const auto targets = Whole(options);
  EXPECT_EQ(targets->info().classes, 0);
  EXPECT_EQ(Copy(*targets, 0, Split::kTrain)[1].target, 15.0F);
  EXPECT_NE(targets->info().digest, classes->info().digest);
}

}  // namespace
}  // namespace macaw::data
