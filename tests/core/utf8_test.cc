#include "core/utf8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace macaw {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Utf8, IsWhatTheStandardSays) {
  for (const char* good : {"", "plain", "\xC3\xA9t\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\xA6\x9C",
                           "\xED\x9F\xBF", "\xEE\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
  // Latin-1, a lone continuation, overlong forms, surrogates, beyond U+10FFFF, cut short.
  for (const char* bad :
       {"\xE9t", "\x80", "\xC0\xAF", "\xC1\xBF", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF0\x80\x80\xAF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xC3", "\xE2\x82", "\xF0\x9F\xA6"}) {
    EXPECT_FALSE(IsUtf8(bad)) << bad;
  }
  EXPECT_EQ(FirstNotUtf8("ab\xC3\xA9\xE9z"), 4u);
}

std::string Utf16(const std::string& text, bool little, bool mark) {
  std::string bytes = !mark ? "" : little ? "\xFF\xFE" : "\xFE\xFF";
  for (const char c : text) {
    if (!little) bytes += '\0';
    bytes += c;
    if (little) bytes += '\0';
  }
  return bytes;
}

TEST(CheckPlainText, NamesWideEncodingsAndSaysHowToConvertThem) {
  for (const bool little : {true, false}) {
    for (const bool mark : {true, false}) {
      const std::string name = little ? "UTF-16LE" : "UTF-16BE";
      EXPECT_THAT(std::string(CheckPlainText(Utf16("a,b\n1,2\n", little, mark), "t.csv").message()),
                  AllOf(HasSubstr("t.csv"), HasSubstr(name), HasSubstr("iconv -f " + name)));
    }
  }
  EXPECT_EQ(WideEncoding(std::string("\xFF\xFE\0\0a\0\0\0", 8)), "UTF-32LE");
  EXPECT_EQ(WideEncoding(std::string("\0\0\xFE\xFF\0\0\0a", 8)), "UTF-32BE");
}

TEST(CheckPlainText, NamesTheLineOfAZeroByteAndTakesAnyOtherBytes) {
  EXPECT_THAT(std::string(CheckPlainText(std::string("1,2\n3,\0,4\n", 10), "t.csv").message()),
              AllOf(HasSubstr("t.csv line 2"), HasSubstr("zero byte")));
  EXPECT_TRUE(CheckPlainText("caf\xE9,1\n", "t.csv").ok());
  EXPECT_TRUE(CheckPlainText("\xEF\xBB\xBFx,1\n", "t.csv").ok());
  EXPECT_TRUE(CheckPlainText("", "t.csv").ok());
}

TEST(EscapeToUtf8, IsOneLineOfUtf8WhateverTheTextHolds) {
  EXPECT_EQ(EscapeToUtf8("caf\xE9 \xC3\xA9\n\"x\\"), "caf\\xe9 \xC3\xA9\\n\\\"x\\\\");
  EXPECT_EQ(EscapeToUtf8(""), "");
  EXPECT_EQ(EscapeToUtf8("\xE9"), "\\xe9");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_TRUE(IsUtf8(EscapeToUtf8(all)));
}

TEST(HeadOf, CutsBetweenCharacters) {
  const std::string text = "aé€😀z";  // 1, 2, 3, 4 and 1 bytes
  EXPECT_EQ(HeadOf(text, 100), text);
  for (size_t bytes = 0; bytes <= text.size(); ++bytes) {
    EXPECT_TRUE(IsUtf8(HeadOf(text, bytes)) && IsUtf8(TailOf(text, bytes))) << bytes;
    EXPECT_LE(HeadOf(text, bytes).size(), bytes);
    EXPECT_LE(TailOf(text, bytes).size(), bytes);
  }
  EXPECT_EQ(HeadOf(text, 5), "aé");
  EXPECT_EQ(TailOf(text, 4), "z");
  EXPECT_EQ(HeadOf("\x80\x80\x80\x80\x80", 4).size(), 1u) << "no character is that long";
}

TEST(CheckUtf8, NamesTheLineAndTheByte) {
  EXPECT_THAT(std::string(CheckUtf8("a\nb\xE9\n", "c.toml").message()),
              AllOf(HasSubstr("c.toml line 2"), HasSubstr("\\xe9"), HasSubstr("iconv -f LATIN1")));
  EXPECT_TRUE(CheckUtf8("a\nb\xC3\xA9\n", "c.toml").ok());
}

}  // namespace
}  // namespace macaw
