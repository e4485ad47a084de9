#include "data/known_files.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/csv_text.h"
#include "data/text.h"

namespace macaw::data {
namespace {

// One of CelebA's forty attributes; no other file has a column of this name.
constexpr char kCelebaAttribute[] = "5_o_Clock_Shadow";

// polarity (0, 2, 4), id, date ("Mon Apr 06 22:19:45 PDT 2009"), query, user, text
bool IsSentiment140(absl::string_view head) {
  CsvText table(head, ',');
  if (!table.Next() || !table.status().ok() || table.cells().size() != 6) return false;
  const std::vector<absl::string_view>& cells = table.cells();
  const bool polarity = cells[0] == "0" || cells[0] == "2" || cells[0] == "4";
  const bool date = absl::StrContains(cells[2], " PDT ") || absl::StrContains(cells[2], " UTC ");
  return polarity && date && ParseNumber(cells[1]).has_value();
}

// "000001.jpg 2880": a picture's name and whole numbers.
bool ListsPictures(absl::string_view head) {
  const absl::string_view line = head.substr(0, head.find_first_of("\r\n"));
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t,;"), absl::SkipEmpty());
  return words.size() > 1 && NamesAPicture(words.front());
}

}  // namespace

bool NamesAPicture(absl::string_view word) {
  const std::string name = absl::AsciiStrToLower(word);
  return std::ranges::any_of(
      std::vector<absl::string_view>{".jpg", ".jpeg", ".png", ".gif", ".bmp"},
      [&](absl::string_view ending) {
        return name.size() > ending.size() && absl::EndsWith(name, ending);
      });
}

std::string KnownFile(absl::string_view head) {
  if (IsSentiment140(head))
    return absl::StrCat(
        "it is Sentiment140 (Sent140): polarity, id, date, query, user and text of tweets in "
        "Latin-1, without a header. ",
        kTextsAdvice);
  if (absl::StrContains(head, kCelebaAttribute))
    return absl::StrCat(
        "it is CelebA's list of attributes (list_attr_celeba), which names pictures and says 1 or "
        "-1 of each attribute. ",
        kPicturesAdvice);
  if (ListsPictures(head)) return absl::StrCat("it names pictures. ", kPicturesAdvice);
  return "";
}

}  // namespace macaw::data
