#include "virtual_time/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace macaw::virtual_time {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Digest DigestOfDevices(absl::string_view csv) {
  const auto table = ParseDevices(csv, "d.csv");
  EXPECT_TRUE(table.ok()) << table.status();
  return table->digest;
}

Digest DigestOfPresence(absl::string_view csv) {
  const auto table = ParsePresence(csv, "p.csv");
  EXPECT_TRUE(table.ok()) << table.status();
  return table->digest;
}

TEST(ParseDevices, ReadsColumnsInAnyOrder) {
  const auto table = ParseDevices(
      "up_kB_s;device;down_sd_kB_s;samples_per_s;down_kB_s\r\n"
      "5;\"a;b\";;100;20\r\n"
      "\r\n"
      " 6 ; c ; 1e1 ; +7.5 ; 30 \r\n",
      "d.csv");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(table->names, ElementsAre("a;b", "c"));
  ASSERT_EQ(table->devices.size(), 2u);
  EXPECT_EQ(table->devices[0].samples_per_s, 100);
  EXPECT_EQ(table->devices[0].down.mean, 20e3);
  EXPECT_EQ(table->devices[0].down.deviation, 0);
  EXPECT_EQ(table->devices[0].up.mean, 5e3);
  EXPECT_EQ(table->devices[1].samples_per_s, 7.5);
  EXPECT_EQ(table->devices[1].down.deviation, 10e3);
  EXPECT_EQ(table->devices[1].up.deviation, 0);
}

TEST(ParseDevices, RefusesEachMalformedTableWithItsLineAndColumn) {
  const std::string head = "device,samples_per_s,down_kB_s,up_kB_s,up_sd_kB_s\n";
  const std::vector<std::pair<std::string, std::vector<const char*>>> cases = {
      {"", {"d.csv is empty"}},
      {head, {"d.csv has no device"}},
      {"device,samples_per_s,down_kB_s\nx,1,2\n", {"d.csv:1: ", "no column \"up_kB_s\""}},
      {"device,samples_per_s,down_kB_s,up_kbs\nx,1,2,3\n",
       {"d.csv:1: ", "column 4 is \"up_kbs\"", "did you mean up_kB_s?"}},
      {"up_kB_s,samples_per_s,down_kB_s,up_kB_s\n1,1,2,3\n",
       {"d.csv:1: ", "two columns \"up_kB_s\""}},
      {head + "x,1,2,3\n", {"d.csv:2: ", "4 cells", "5 columns"}},
      {head + "x,1,2,3,0\n\ny,fast,2,3,0\n", {"d.csv:4: ", "\"samples_per_s\"", "\"fast\""}},
      {head + "x,0,2,3,0\n", {"d.csv:2: ", "\"samples_per_s\"", ">= 1e-12"}},
      {head + "x,1e-320,2,3,0\n", {"d.csv:2: ", "\"samples_per_s\"", ">= 1e-12"}},
      {head + "x,1,-2,3,0\n", {"d.csv:2: ", "\"down_kB_s\"", ">= 1e-12"}},
      {head + "x,1,2,,0\n", {"d.csv:2: ", "\"up_kB_s\"", "\"\""}},
      {head + "x,1,2,nan,0\n", {"d.csv:2: ", "\"up_kB_s\"", "\"nan\""}},
      {head + "x,1,inf,3,0\n", {"d.csv:2: ", "\"down_kB_s\""}},
      {head + "x,1e16,2,3,0\n", {"d.csv:2: ", "\"samples_per_s\"", "at most"}},
      {head + "x,1,2,3,-1\n", {"d.csv:2: ", "\"up_sd_kB_s\"", ">= 0"}},
      {head + ",1,2,3,0\n", {"d.csv:2: ", "\"device\" is empty"}},
      {head + "x,1,2,3,0\ny,1,2,3,0\nx,4,5,6,0\n", {"d.csv:4: ", "\"device\"", "\"x\"", "line 2"}},
      {head + "\"x,1,2,3,0\n", {"d.csv:2: ", "quotation mark"}},
  };
  for (const auto& [csv, says] : cases) {
    const absl::Status status = ParseDevices(csv, "d.csv").status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << csv;
    for (const char* words : says)
      EXPECT_THAT(std::string(status.message()), HasSubstr(words)) << csv;
  }
}

TEST(ParseDevices, GivesADigestOfWhatTheTableSays) {
  const Digest digest =
      DigestOfDevices("device,samples_per_s,down_kB_s,up_kB_s\na,1,2,3\nb,4,5,6\n");
  EXPECT_EQ(DigestOfDevices("up_kB_s;samples_per_s;device;down_kB_s\n3.0;1;\"a\";2\r\n6;4;b;5"),
            digest);
  EXPECT_EQ(DigestOfDevices("\xEF\xBB\xBF"  // the byte order mark of spreadsheets
                            "device,samples_per_s,down_kB_s,up_kB_s\na,1,2,3\nb,4,5,6\n"),
            digest);
  for (const char* other : {
           "device,samples_per_s,down_kB_s,up_kB_s\na,1,2,3\nb,4,5,7\n",
           "device,samples_per_s,down_kB_s,up_kB_s\na,1,2,3\nc,4,5,6\n",
           "device,samples_per_s,down_kB_s,up_kB_s\nb,4,5,6\na,1,2,3\n",
           "device,samples_per_s,down_kB_s,up_kB_s\na,1,2,3\n",
           "device,samples_per_s,down_kB_s,up_kB_s,up_sd_kB_s\na,1,2,3,0\nb,4,5,6,1\n",
           "samples_per_s,down_kB_s,up_kB_s\n1,2,3\n4,5,6\n",
       }) {
    EXPECT_NE(DigestOfDevices(other), digest) << other;
  }
}

TEST(ParsePresence, JoinsIntervalsThatTouchOrOverlap) {
  const auto table = ParsePresence(
      "\xEF\xBB\xBF"  // the byte order mark of spreadsheets
      "device,on_s,off_s,period_s\na,50,60,100\nb,0,1,10\na,10,20,100\na,20,30,100\n"
      "a,55,58,100\n",
      "p.csv");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(table->names, ElementsAre("a", "b"));
  EXPECT_EQ(table->records[0].period, 100);
  ASSERT_EQ(table->Of(0).size(), 2u);
  EXPECT_EQ(table->Of(0)[0], (Interval{10, 30}));
  EXPECT_EQ(table->Of(0)[1], (Interval{50, 60}));
  ASSERT_EQ(table->Of(1).size(), 1u);
  EXPECT_EQ(table->Of(1)[0], (Interval{0, 1}));
}

TEST(ParsePresence, RefusesEachMalformedTableWithItsLineAndColumn) {
  const std::string head = "device,on_s,off_s,period_s\n";
  const std::vector<std::pair<std::string, std::vector<const char*>>> cases = {
      {"", {"p.csv is empty"}},
      {head, {"p.csv has no interval"}},
      {"device,on_s,off_s\na,1,2\n", {"p.csv:1: ", "no column \"period_s\""}},
      {head + "a,1,2\n", {"p.csv:2: ", "3 cells"}},
      {head + "a,soon,2,3\n", {"p.csv:2: ", "\"on_s\"", "\"soon\""}},
      {head + "a,-1,2,3\n", {"p.csv:2: ", "\"on_s\"", ">= 0"}},
      {head + "a,1,2,3\na,2,2,3\n", {"p.csv:3: ", "\"off_s\" is 2", "not above"}},
      {head + "a,1,4,3\n", {"p.csv:2: ", "\"off_s\" is 4", "above column \"period_s\""}},
      {head + "a,1,2,3\nb,1,2,9\na,1,2,4\n", {"p.csv:4: ", "\"period_s\" is 4", "\"a\""}},
      {head + ",1,2,3\n", {"p.csv:2: ", "\"device\" is empty"}},
  };
  for (const auto& [csv, says] : cases) {
    const absl::Status status = ParsePresence(csv, "p.csv").status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << csv;
    for (const char* words : says)
      EXPECT_THAT(std::string(status.message()), HasSubstr(words)) << csv;
  }
}

TEST(ParsePresence, GivesADigestOfWhatTheTableSays) {
  const Digest digest = DigestOfPresence("device,on_s,off_s,period_s\na,0,2,9\na,2,3,9\n");
  EXPECT_EQ(DigestOfPresence("period_s,device,on_s,off_s\n9,a,0,3\n"), digest);
  EXPECT_NE(DigestOfPresence("device,on_s,off_s,period_s\na,0,3,8\n"), digest);
  EXPECT_NE(DigestOfPresence("device,on_s,off_s,period_s\nb,0,3,9\n"), digest);
  EXPECT_NE(DigestOfPresence("device,on_s,off_s,period_s\na,0,4,9\n"), digest);
}

TEST(ReadDevices, NamesAFileThatIsNotThere) {
  EXPECT_THAT(std::string(ReadDevices("/nowhere/devices.csv").status().message()),
              HasSubstr("/nowhere/devices.csv"));
}

}  // namespace
}  // namespace macaw::virtual_time
