#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/files.h"
#include "server/journal/bytes.h"
#include "server/journal/format.h"
#include "server/journal/frame_file.h"
#include "server/journal/journal.h"

// A journal that another release has written, and one that it is to read.
namespace macaw::server {

// What an earlier and a later release keep of a thing.
struct OldItem {
  uint64_t number = 0;
  std::string text;
};
struct NewItem {
  std::string text = "before";
  double added = 0.5;
  uint64_t number = 0;
  std::vector<OldItem> more;
  Attempt attempt;
};
struct OtherItem {
  std::string number;  // of another kind
};
constexpr auto FieldsOf(std::type_identity<OldItem>) {
  return std::tuple(fleet::MakeField("number", &OldItem::number, nullptr),
                    fleet::MakeField("text", &OldItem::text, nullptr));
}
constexpr auto FieldsOf(std::type_identity<NewItem>) {
  return std::tuple(fleet::MakeField("text", &NewItem::text, nullptr),
                    fleet::MakeField("added", &NewItem::added, nullptr),
                    fleet::MakeField("number", &NewItem::number, nullptr),
                    fleet::MakeField("more", &NewItem::more, nullptr),
                    fleet::MakeField("attempt", &NewItem::attempt, nullptr));
}
constexpr auto FieldsOf(std::type_identity<OtherItem>) {
  return std::tuple(fleet::MakeField("number", &OtherItem::number, nullptr));
}

namespace {

using testing::HasSubstr;

constexpr char kOld[] = "{number:number,text:text}";
constexpr char kNew[] =
    "{text:text,added:real,number:number,more:[{number:number,text:text}],attempt:attempt}";

TEST(JournalFormatTest, IsAText) {
  EXPECT_EQ(TextOf(FormatOf<OldItem>()), kOld);
  EXPECT_EQ(TextOf(FormatOf<NewItem>()), kNew);
  EXPECT_EQ(ParseFormat(kOld), FormatOf<OldItem>());
  EXPECT_EQ(ParseFormat(kNew), FormatOf<NewItem>());
}

TEST(JournalFormatTest, RefusesWhatIsNone) {
  for (const std::string wrong :
       {"", "{", "{a", "{a:", "{a:number", "{a:number,}", "{:number}", "[number", "[]", "word",
        "number ", "{a:number}}", "{a:number b:number}", "{a:strange}"}) {
    EXPECT_EQ(ParseFormat(wrong), std::nullopt) << wrong;
  }
  EXPECT_EQ(ParseFormat(std::string(100'000, '[')), std::nullopt);
}

class JournalReleaseTest : public testing::Test {
 protected:
  JournalReleaseTest()
      : path_(testing::TempDir() + "/frames-" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove(path_);
  }

  template <typename T>
  absl::StatusOr<FramesEnd> ReadInto(std::vector<T>& items) const {
    return ForEachValue<T>(path_, [&](T item, uint64_t, uint64_t) {
      items.push_back(std::move(item));
      return absl::OkStatus();
    });
  }
  template <typename T>
  void Append(const T& item) const {
    std::vector<T> before;
    const absl::StatusOr<FramesEnd> end = ReadInto(before);
    ASSERT_TRUE(end.ok()) << end.status();
    FrameFile<T> file = *FrameFile<T>::Open(path_, *end);
    ASSERT_TRUE(file.Add(item, {}).ok());
  }

  const std::string path_;
};

TEST_F(JournalReleaseTest, ALaterReleaseReadsWhatAnEarlierOneWrote) {
  Append(OldItem{.number = 7, .text = "seven"});
  std::vector<NewItem> items;
  ASSERT_TRUE(ReadInto(items).ok());
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].number, 7u);
  EXPECT_EQ(items[0].text, "seven");
  EXPECT_EQ(items[0].added, 0.5) << "a field that was not written has its default";
}

TEST_F(JournalReleaseTest, AnEarlierReleaseReadsWhatItKnowsOfALaterOne) {
  Append(NewItem{.text = "eight",
                 .added = 1.5,
                 .number = 8,
                 .more = {{.number = 1, .text = "one"}, {.number = 2, .text = "two"}},
                 .attempt = {ClientId(4), {2, 9}}});
  std::vector<OldItem> items;
  ASSERT_TRUE(ReadInto(items).ok());
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].number, 8u);
  EXPECT_EQ(items[0].text, "eight");
}

TEST_F(JournalReleaseTest, ReleasesMayWriteInTurn) {
  Append(OldItem{.number = 1, .text = "a"});
  Append(NewItem{.text = "b", .number = 2, .more = {{.number = 5}}});
  Append(NewItem{.text = "c", .number = 3});
  Append(OldItem{.number = 4, .text = "d"});
  std::vector<OldItem> old;
  std::vector<NewItem> later;
  ASSERT_TRUE(ReadInto(old).ok());
  ASSERT_TRUE(ReadInto(later).ok());
  ASSERT_EQ(old.size(), 4u);
  ASSERT_EQ(later.size(), 4u);
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(old[i].number, i + 1);
    EXPECT_EQ(later[i].number, i + 1);
    EXPECT_EQ(old[i].text, std::string(1, static_cast<char>('a' + i)));
    EXPECT_EQ(later[i].text, old[i].text);
  }
  EXPECT_EQ(later[1].more.size(), 1u);
}

TEST_F(JournalReleaseTest, AFieldOfAnotherKindIsRefused) {
  Append(OldItem{.number = 7});
  std::vector<OtherItem> items;
  const absl::Status status = ReadInto(items).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("another release"));
  EXPECT_THAT(status.message(), HasSubstr(path_));
}

TEST_F(JournalReleaseTest, ValuesWithoutAFormatAreRefused) {
  RecordFile file = *RecordFile::Open(path_, 0, kOwnerOnly);
  ByteWriter head;
  head.PutNumber(kValueHead);
  head.Put(OldItem{.number = 7});
  ASSERT_TRUE(WriteFrame(file, std::move(head).Take(), {}).ok());
  std::vector<OldItem> items;
  EXPECT_THAT(ReadInto(items).status().message(), HasSubstr("another release"));
}

TEST_F(JournalReleaseTest, AFormatThatWasTornIsWrittenAgain) {
  Append(OldItem{.number = 7});
  const std::string whole = *ReadFile(path_);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    ASSERT_TRUE(AtomicWriteFile(path_, absl::string_view(whole).substr(0, bytes)).ok());
    Append(OldItem{.number = 8});
    std::vector<OldItem> items;
    ASSERT_TRUE(ReadInto(items).ok());
    ASSERT_EQ(items.size(), 1u) << bytes;
    EXPECT_EQ(items[0].number, 8u);
  }
}

TEST_F(JournalReleaseTest, EveryByteOfAFrameIsChecked) {
  Append(NewItem{.text = "b", .number = 2, .more = {{.number = 5, .text = "five"}}});
  const std::string whole = *ReadFile(path_);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bad = whole;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    ASSERT_TRUE(AtomicWriteFile(path_, bad).ok());
    std::vector<OldItem> items;
    const absl::StatusOr<FramesEnd> end = ReadInto(items);
    EXPECT_TRUE(!end.ok() || items.empty()) << at;
  }
}

}  // namespace
}  // namespace macaw::server
