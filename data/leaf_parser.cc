#include "data/leaf_parser.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/status.h"
#include "data/known_files.h"
#include "data/text.h"
#include "data/vocabulary.h"

namespace macaw::data {
namespace {

using Json = nlohmann::json;

// The parser's position in {"users": [...], "num_samples": [...], "user_data": {user: {"x":
// [[...]], "y": [...]}}}. Everything else (LEAF's "hierarchies") is skipped.
class LeafEvents : public nlohmann::json_sax<Json> {
 public:
  // If earlier files had labels, those of this file must be of the same kind.
  explicit LeafEvents(LeafRows& rows)
      : rows_(rows), text_labels_(rows.lengths.empty() ? 0 : rows.labels.size()) {}

  absl::Status Finish() {
    if (!error_.ok()) return error_;
    if (users_.empty()) return absl::InvalidArgumentError("holds no \"users\"");
    if (!counts_.empty() && counts_.size() != users_.size()) {
      return Refuse(counts_.size(), " entries of \"num_samples\" for ", users_.size(), " users");
    }
    for (size_t i = 0; i < users_.size(); ++i) {
      const auto found = data_.find(users_[i]);
      if (found == data_.end())
        return Refuse("user ", Quoted(users_[i]), " has no \"user_data\" or comes twice");
      if (!counts_.empty() && counts_[i] != static_cast<double>(found->second.rows)) {
        return Refuse("user ", Quoted(users_[i]), " has ", found->second.rows,
                      " rows, but \"num_samples\" says ", counts_[i]);
      }
      rows_.users.push_back(std::move(found->second));
      data_.erase(found);
    }
    if (!data_.empty())
      return Refuse("\"user_data\" of ", Quoted(data_.begin()->first), ", who is not in \"users\"");
    return absl::OkStatus();
  }

  bool key(string_t& name) override {
    if (depth_ == 1) section_ = name;
    if (depth_ == 2 && section_ == "user_data") {
      user_ = LeafUser{.name = name, .first_row = RowsSoFar(), .first_label = rows_.labels.size()};
      x_rows_ = 0;
    }
    if (depth_ == 3) field_ = name;
    return true;
  }
  bool start_object(size_t) override {
    if (InField()) return Fail("an object among the ", field_, " of user ", Quoted(user_.name));
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    return depth_ != 2 || section_ != "user_data" || EndUser();
  }
  bool start_array(size_t) override {
    ++depth_;
    if (depth_ == 1) return Fail("is not a JSON object");
    if (InField() && field_ == "x" && depth_ == 5) row_begin_ = rows_.features.size();
    return true;
  }
  bool end_array() override {
    const bool row_ends = InField() && field_ == "x" && depth_ == 5;
    --depth_;
    return !row_ends || EndRow();
  }

  bool number_integer(int64_t value) override { return Number(static_cast<double>(value)); }
  bool number_unsigned(uint64_t value) override { return Number(static_cast<double>(value)); }
  bool number_float(double value, const string_t&) override { return Number(value); }
  bool null() override {
    return !InField() || Fail("null in ", Quoted(field_), " of user ", Quoted(user_.name));
  }
  bool boolean(bool) override { return !InField() || Fail("true or false in ", Quoted(field_)); }
  bool binary(Json::binary_t&) override { return Fail("binary data"); }
  bool string(string_t& value) override {
    if (depth_ == 2 && section_ == "users") users_.push_back(value);
    if (!InField()) return true;
    if (depth_ == 4 && field_ == "x" && NamesAPicture(value)) {
      return Fail("user ", Quoted(user_.name), " row ", x_rows_, " is the name of a picture (",
                  Quoted(Beginning(value)), "), as those of LEAF's CelebA are. ", kPicturesAdvice);
    }
    if (depth_ == 4 && field_ == "x" && !value.empty()) return Text(value);
    if (depth_ == 4 && field_ == "y" && value.size() == 1) {
      rows_.labels.push_back(TokenOf(value[0]));
      ++text_labels_;
      return true;
    }
    if (depth_ == 5 && field_ == "x") {
      return Fail(
          "user ", Quoted(user_.name), " row ", x_rows_, " is a list of texts (",
          Quoted(Beginning(value)),
          "...), and a row of text is one string in \"x\". If it is LEAF's Sent140 (tweets): ",
          kTextsAdvice);
    }
    return Fail("user ", Quoted(user_.name), " row ", x_rows_, ": text in ", Quoted(field_), " (",
                Quoted(Beginning(value)),
                "...); a row of text is one string in \"x\" and the one character behind it in "
                "\"y\", everything else is numbers");
  }
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception&) override {
    // NaN, -Infinity and None fail at their first letter, nan at its second.
    const bool no_number = token.ends_with('N') || token.ends_with('I') || token.ends_with("na");
    return Fail("is not JSON at byte ", position, " (near ", Quoted(token.substr(0, 30)), ")",
                no_number
                    ? ": the numbers of JSON are finite, and NaN, Infinity and None are none; "
                      "leave such rows out, or write a number for them"
                    : "; is the file cut short?");
  }

 private:
  // Of a text, for a message: whole characters.
  static std::string Beginning(const std::string& text) {
    constexpr size_t kShown = 20;
    size_t end = std::min(kShown, text.size());
    while (end > 0 && end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
    return text.substr(0, end);
  }

  // Whether the parser is inside user_data.<user>.<field>.
  bool InField() const {
    return depth_ >= 3 && section_ == "user_data" && (field_ == "x" || field_ == "y");
  }

  uint64_t RowsSoFar() const {
    if (!rows_.lengths.empty()) return rows_.lengths.size();
    return rows_.width == 0 ? 0 : rows_.features.size() / rows_.width;
  }

  bool Text(const std::string& text) {
    if (rows_.lengths.size() != RowsSoFar()) return MixedKinds();
    for (const char character : text) {
      rows_.features.push_back(static_cast<float>(TokenOf(character)));
    }
    rows_.lengths.push_back(static_cast<uint32_t>(text.size()));
    rows_.width = std::max<uint64_t>(rows_.width, text.size());
    ++x_rows_;
    return true;
  }

  bool MixedKinds() {
    return Fail("user ", Quoted(user_.name), " row ", x_rows_,
                ": some rows of the file are text and some are numbers");
  }

  bool Number(double value) {
    if (depth_ == 2 && section_ == "num_samples") counts_.push_back(value);
    if (!InField() || depth_ < 4) return true;
    if (!std::isfinite(static_cast<float>(value))) {
      return Fail("user ", Quoted(user_.name), ": ", Quoted(field_),
                  " holds a number that is not finite in 32 bits");
    }
    if (field_ == "y") {
      if (depth_ != 4)
        return Fail("user ", Quoted(user_.name), ": \"y\" must be a list of numbers");
      rows_.labels.push_back(value);
      rows_.whole = rows_.whole && IsWhole(value);
      return true;
    }
    if (!rows_.lengths.empty()) return MixedKinds();
    if (depth_ == 4) row_begin_ = rows_.features.size();  // each number is a row of its own
    rows_.features.push_back(static_cast<float>(value));
    return depth_ != 4 || EndRow();
  }

  bool EndRow() {
    const size_t width = rows_.features.size() - row_begin_;
    if (rows_.width == 0) rows_.width = width;
    if (width != rows_.width || width == 0) {
      return Fail("user ", Quoted(user_.name), " row ", x_rows_, " has ", width,
                  " features, the first row has ", rows_.width);
    }
    ++x_rows_;
    return true;
  }

  bool EndUser() {
    if (user_.name.empty()) return Fail("a user has no name in \"user_data\"");
    user_.rows = rows_.labels.size() - user_.first_label;
    if (user_.rows != x_rows_) {
      return Fail("user ", Quoted(user_.name), " has ", x_rows_, " rows of \"x\" but ", user_.rows,
                  " of \"y\"");
    }
    if (text_labels_ != (rows_.lengths.empty() ? 0 : rows_.labels.size())) {
      return Fail("user ", Quoted(user_.name),
                  ": rows of text need \"y\" = the next character; other rows must not have it");
    }
    const std::string name = user_.name;
    if (!data_.emplace(name, std::move(user_)).second)
      return Fail("user ", Quoted(name), " comes twice");
    return true;
  }

  template <typename... Words>
  bool Fail(const Words&... words) {
    error_ = Refuse(words...);
    return false;
  }

  LeafRows& rows_;
  absl::Status error_;
  int depth_ = 0;  // number of open brackets
  std::string section_, field_;
  std::vector<std::string> users_;
  std::vector<double> counts_;
  std::map<std::string, LeafUser> data_;
  LeafUser user_;
  uint64_t x_rows_ = 0;
  uint64_t text_labels_ = 0;
  size_t row_begin_ = 0;
};

}  // namespace

void PadText(LeafRows& rows, uint64_t width) {
  if (rows.lengths.empty()) return;
  std::vector<float> padded(rows.lengths.size() * width);
  const float* from = rows.features.data();
  for (size_t row = 0; row < rows.lengths.size(); from += rows.lengths[row++]) {
    std::copy_n(from, rows.lengths[row], padded.data() + row * width);
  }
  rows.features = std::move(padded);
  rows.width = width;
}

absl::Status AppendLeaf(absl::string_view text, LeafRows& rows) {
  LeafEvents events(rows);
  Json::sax_parse(text.begin(), text.end(), &events);
  return events.Finish();
}

}  // namespace macaw::data
