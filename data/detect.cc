#include "data/detect.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "core/csv_text.h"
#include "core/status.h"
#include "core/utf8.h"
#include "data/known_files.h"
#include "data/separator.h"
#include "data/source_file.h"
#include "data/text.h"

namespace macaw::data {
namespace {

template <typename... Words>
absl::Status Unknown(const std::string& path, const Words&... words) {
  return absl::InvalidArgumentError(absl::StrCat(path, " ", words...));
}

absl::StatusOr<std::string> OfFolder(const std::string& path) {
  const auto holds = [&](const std::vector<std::string>& names) {
    return !FindIn(path, names).empty();
  };
  if (holds({"train-images-idx3-ubyte", "train-images.idx3-ubyte", "t10k-images-idx3-ubyte",
             "t10k-images.idx3-ubyte"})) {
    return "idx";
  }
  if (holds({"data_batch_1.bin", "cifar-10-batches-bin"})) return "cifar10";
  if (holds({"cifar-100-binary", "train.bin"})) return "cifar100";
  if (holds({"train"}) || FilesIn(path, ".json").ok()) return "leaf";
  return Unknown(path,
                 "is a folder without IDX files (train-images-idx3-ubyte), CIFAR batches "
                 "(data_batch_1.bin, train.bin) or LEAF's .json files; name one file of it");
}

// Formats that cannot be read, recognised by their first bytes, and how to convert them.
struct Foreign {
  absl::string_view magic, advice;
};
constexpr char kWriteIt[] = "write its arrays with numpy.savez as x and y";
constexpr Foreign kForeign[] = {
    {{"\x93NUMPY", 6},
     "write features and labels as one file: numpy.savez(\"mine.npz\", x=x, y=y)"},
    {{"PK\x03\x04", 4},
     "unpack it, or, if it is a PyTorch file, write its arrays with numpy.savez as x and y"},
    {{"PAR1", 4}, "write it as CSV"},
    {{"\x80\x02", 2}, kWriteIt},
    {{"\x80\x04", 2}, kWriteIt},
    {{"\x89PNG", 4}, "write all images as one prepared file (docs/guides/data.md)"},
    {{"\xFF\xD8\xFF", 3}, "write all images as one prepared file (docs/guides/data.md)"},
};

// A ZIP archive whose first member is a NumPy array.
bool IsNpz(absl::string_view head) {
  if (!absl::StartsWith(head, absl::string_view("PK\x03\x04", 4)) || head.size() < 30) return false;
  const size_t name_bytes = static_cast<uint8_t>(head[26]) | static_cast<uint8_t>(head[27]) << 8;
  return absl::EndsWith(head.substr(30, name_bytes), ".npy");
}

constexpr size_t kHead = size_t{64} << 10;

// The first two lines that are neither comments nor cut off at the end of `text`.
std::vector<absl::string_view> FirstLines(absl::string_view text) {
  std::vector<absl::string_view> lines;
  (void)ForEachLine(text, [&](int64_t, absl::string_view line) {
    const absl::string_view words = absl::StripAsciiWhitespace(line);
    const bool cut = text.size() > kHead / 2 && line.end() == text.end();
    if (!words.empty() && words.front() != '#' && lines.size() < 2 && !(cut && !lines.empty()))
      lines.push_back(line);
    return absl::OkStatus();
  });
  return lines;
}

// How the records of a text look with one separator.
struct TableLook {
  size_t cells = 0;         // of the first record; 0: it cannot be read
  size_t others = 0;        // records behind it that are looked at
  size_t alike = 0;         // those of them with as many cells
  int64_t unlike_line = 0;  // where the first of the others begins; 0: there is none
  bool second_alike = false;

  bool IsTable(double unreadable) const {
    if (cells < 2) return false;
    if (others == 0 || second_alike) return true;
    const double most = std::max(0.5, unreadable) * static_cast<double>(others);
    return alike > 0 && static_cast<double>(others - alike) <= most;
  }
};

TableLook LookAt(absl::string_view text, char separator) {
  constexpr size_t kMost = 100;
  const bool cut = text.size() > kHead / 2;
  CsvText table(text, separator);
  TableLook look;
  if (!table.Next()) return look;
  const size_t cells = table.status().ok() ? table.cells().size() : 0;
  look.cells = cells;
  while (look.others < kMost && table.Next()) {
    if (cut && table.at_end()) break;  // it may end inside the record
    ++look.others;
    const bool alike = table.status().ok() && table.cells().size() == cells;
    look.alike += alike ? 1 : 0;
    if (look.others == 1) look.second_alike = alike;
    if (!alike && look.unlike_line == 0) look.unlike_line = table.line();
  }
  return look;
}

TableLook LookAt(absl::string_view text, const std::vector<absl::string_view>& lines,
                 const DataOptions& given) {
  const auto before = static_cast<size_t>(lines.front().data() - text.data());
  const absl::string_view from = text.substr(before);
  TableLook look = LookAt(from, SeparatorOf(given.separator, from));
  if (look.unlike_line == 0) return look;
  (void)ForEachLine(text.substr(0, before), [&](int64_t, absl::string_view) {
    ++look.unlike_line;
    return absl::OkStatus();
  });
  return look;
}

// "label index:value ..."
bool IsSparseRow(absl::string_view line) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.size() < 2 || !ParseNumber(words[0])) return false;
  const std::pair<absl::string_view, absl::string_view> pair =
      absl::StrSplit(words[1], absl::MaxSplits(':', 1));
  return ParseNumber(pair.first) && ParseNumber(pair.second);
}

absl::StatusOr<std::string> OfText(const std::string& path, absl::string_view text,
                                   const DataOptions& given) {
  text = WithoutByteOrderMark(text);
  const std::vector<absl::string_view> lines = FirstLines(text);
  const absl::string_view line =
      lines.empty() ? "" : absl::StripLeadingAsciiWhitespace(lines.front());
  if (!line.empty() && (line.front() == '{' || line.front() == '[')) {
    if (absl::StrContains(text, "\"users\"") || absl::StrContains(text, "\"user_data\""))
      return "leaf";
    return Unknown(path, "is JSON, but not LEAF's (\"users\", \"user_data\")");
  }
  if (IsSparseRow(line)) return "libsvm";
  const TableLook look = lines.empty() ? TableLook() : LookAt(text, lines, given);
  const bool table = look.IsTable(given.unreadable_rows);
  if (const std::string known = KnownFile(text); !known.empty()) {
    // The numbers of a table of pictures can be read, without the pictures' names.
    const bool numbers =
        absl::StrContains(known, kPicturesAdvice) && table && absl::StrContains(line, ',');
    return numbers ? absl::StatusOr<std::string>("csv") : Unknown(path, "is not read: ", known);
  }
  if (table || (!given.separator.empty() && !lines.empty())) return "csv";
  if (lines.size() > 1 && IsSparseRow(lines[1])) return "libsvm";  // whose first row is damaged
  const std::string unlike = look.cells > 1 && look.unlike_line > 0
                                 ? absl::StrCat("; its first line has ", look.cells,
                                                " cells, and line ", look.unlike_line, " has not")
                                 : "";
  return Unknown(
      path, "is text, but neither rows of cells (CSV) nor `label index:value ...` (LIBSVM)", unlike,
      ". If it is a table, data.source = \"csv\" says so, and data.separator what stands "
      "between its cells; running text becomes rows in LEAF's JSON: "
      "docs/guides/data.md");
}

}  // namespace

absl::StatusOr<std::string> DetectSource(const std::string& path, const DataOptions& given) {
  MACAW_RETURN_IF_ERROR(CheckExists(path));
  if (IsFolder(path)) return OfFolder(path);
  MACAW_ASSIGN_OR_RETURN(const std::string head, ReadHead(path, kHead));
  if (head.empty()) return Unknown(path, "is empty");
  // Safetensors: the header's length in eight bytes, then the header, which is JSON.
  if (head.size() > 9 && head[8] == '{' && head.substr(4, 4) == std::string(4, '\0'))
    return "prepared";
  if (absl::StartsWith(head, absl::string_view("\0\0\x08\x03", 4))) return "idx";
  if (absl::StartsWith(head, absl::string_view("\0\0\x08\x01", 4)))
    return Unknown(path, "holds IDX labels; name the file of the images beside it");
  if (IsNpz(head)) return "npz";
  if (absl::StartsWith(head, absl::string_view("\x89HDF", 4))) return "hdf5";
  for (const Foreign& foreign : kForeign) {
    if (absl::StartsWith(head, foreign.magic))
      return Unknown(path, "is of a format that is not read; ", foreign.advice);
  }
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && absl::EndsWith(path, ".bin") && size % 3073 == 0) return "cifar10";
  if (!error && absl::EndsWith(path, ".bin") && size % 3074 == 0) return "cifar100";
  if (!WideEncoding(head).empty()) return CheckPlainText(head, path);
  if (head.find('\0') == std::string::npos) return OfText(path, head, given);
  return Unknown(path,
                 "is of no format that is known: IDX, CIFAR's .bin, LIBSVM, CSV, LEAF's JSON, "
                 ".npz, HDF5 or a prepared safetensors file");
}

}  // namespace macaw::data
