#include "data/histogram.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/digest.h"
#include "core/random.h"
#include "core/status.h"
#include "core/utf8.h"
#include "data/npy.h"
#include "data/source_file.h"
#include "data/text.h"
#include "data/zip.h"

namespace macaw::data {
namespace {

constexpr char kArrayName[] = "histogram.npy";

// Streams of their own, beside those of the schemes in partition.cc.
enum HistogramDraw : uint64_t {
  kHistogramClients = 101,
  kHistogramRows = 102,
  kHistogramOffset = 103
};

RandomStream HistogramStream(const PartitionOptions& options, HistogramDraw what,
                             uint64_t which = 0) {
  return RandomStream({.seed = options.seed,
                       .purpose = Purpose::kPartition,
                       .client = ClientId(which),
                       .extra = what});
}

absl::StatusOr<Histogram> FromArray(const StoredArray& array) {
  if (array.shape.size() != 2 || array.kind == 'b' || !(array.is_integer() || array.kind == 'f'))
    return RefuseArray(array,
                       "must be a matrix of whole numbers: a row a client, a column a class");
  Histogram histogram{.clients = array.shape[0], .classes = array.shape[1]};
  histogram.counts.reserve(histogram.clients * histogram.classes);
  for (uint64_t i = 0; i < histogram.clients * histogram.classes; ++i) {
    const double count =
        array.is_integer() ? static_cast<double>(IntegerAt(array, i)) : FloatAt(array, i);
    if (!(count >= 0 && count <= UINT32_MAX) || count != std::floor(count)) {
      return RefuseArray(
          array, absl::StrCat("has ", count, " for client ", i / histogram.classes, " and class ",
                              i % histogram.classes, "; numbers of rows are whole, from 0"));
    }
    histogram.counts.push_back(static_cast<uint32_t>(count));
  }
  return histogram;
}

absl::StatusOr<Histogram> FromNpy(absl::string_view bytes, const std::string& name) {
  MACAW_ASSIGN_OR_RETURN(const StoredArray array, ParseNpy(bytes, name));
  return FromArray(array);
}

absl::StatusOr<Histogram> FromArchive(std::string bytes, const std::string& path) {
  MACAW_ASSIGN_OR_RETURN(const ZipArchive archive, ZipArchive::Parse(std::move(bytes), path));
  const std::vector<ZipMember>& members = archive.members();
  const auto named = std::ranges::find(members, kArrayName, &ZipMember::name);
  if (named == members.end() && members.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " has ", members.size(), " arrays, and none is called histogram: which is it?"));
  }
  const ZipMember& member = named != members.end() ? *named : members.front();
  MACAW_ASSIGN_OR_RETURN(const std::string array, archive.Unpack(member));
  return FromNpy(array, absl::StrCat(path, ": ", member.name));
}

// Of two cells that a comma, a semicolon or, where there is neither, a tab sets apart. A last
// separator may end the line.
bool HasEmptyCell(absl::string_view line) {
  const bool commas = line.find_first_of(",;") != absl::string_view::npos;
  std::vector<absl::string_view> cells =
      absl::StrSplit(line, absl::ByAnyChar(commas ? ",;" : "\t"));
  const auto is_empty = [](absl::string_view cell) {
    return absl::StripAsciiWhitespace(cell).empty();
  };
  if (cells.size() > 1 && is_empty(cells.back())) cells.pop_back();
  return std::ranges::any_of(cells, is_empty);
}

// 0, 1, ...: the columns' numbers, as pandas writes them above a table.
bool CountsFromZero(const std::vector<absl::string_view>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] != absl::StrCat(i)) return false;
  }
  return words.size() > 1;
}

absl::StatusOr<Histogram> FromText(absl::string_view text, const std::string& path) {
  MACAW_RETURN_IF_ERROR(CheckPlainText(text, path));
  text = WithoutByteOrderMark(text);
  Histogram histogram;
  bool first = true;
  MACAW_RETURN_IF_ERROR(ForEachLine(text, [&](int64_t number, absl::string_view line) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(",; \t"), absl::SkipEmpty());
    if (absl::StripAsciiWhitespace(line).empty()) return absl::OkStatus();
    const auto refuse = [&](const auto&... why) {
      return absl::InvalidArgumentError(absl::StrCat(path, " line ", number, " ", why...));
    };
    const bool is_first = std::exchange(first, false);
    const auto is_number = [](absl::string_view word) { return ParseNumber(word).has_value(); };
    const bool header = is_first && !words.empty() && std::ranges::none_of(words, is_number);
    if (header) return absl::OkStatus();
    if (HasEmptyCell(line)) return refuse("has an empty cell: 0 is no row of a class");
    if (is_first && CountsFromZero(words)) {
      return refuse("is 0 to ", words.size() - 1,
                    ", which may be a header or the first client: delete a header; above a "
                    "client write a line of words, such as the classes' names");
    }
    for (const absl::string_view word : words) {
      uint32_t count = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), count);
      if (error != std::errc() || end != word.data() + word.size())
        return refuse("has ", Quoted(word.substr(0, 40)), "; numbers of rows are whole, from 0");
      histogram.counts.push_back(count);
    }
    if (histogram.clients == 0) histogram.classes = words.size();
    if (words.size() != histogram.classes)
      return refuse("has ", words.size(), " numbers, the first client has ", histogram.classes);
    ++histogram.clients;
    return absl::OkStatus();
  }));
  return histogram;
}

// The clients to take, ascending: a part of what more clients would be.
std::vector<uint32_t> ClientsOf(const PartitionOptions& options, uint64_t population) {
  std::vector<uint32_t> clients(population);
  std::iota(clients.begin(), clients.end(), 0U);
  if (options.clients == 0 || options.clients == population) return clients;
  HistogramStream(options, kHistogramClients).Shuffle(std::span(clients));
  clients.resize(options.clients);
  std::ranges::sort(clients);
  return clients;
}

// Rows of each class, of the pool or of the chosen clients.
using PerClass = std::vector<uint64_t>;

// The share of its rows that each client gets: 1 where every class has enough.
absl::StatusOr<double> ShareOf(const PerClass& asked, const PerClass& there, uint64_t clients,
                               std::vector<std::string>& notes) {
  double share = 1;
  size_t scarce = 0;
  for (size_t c = 0; c < asked.size(); ++c) {
    if (asked[c] > 0 && there[c] == 0) {
      return absl::InvalidArgumentError(absl::StrCat("asks for ", asked[c], " rows of class ", c,
                                                     ", and the data have none to train on"));
    }
    const double part =
        asked[c] == 0 ? 1 : static_cast<double>(there[c]) / static_cast<double>(asked[c]);
    if (part < share) share = part, scarce = c;
  }
  if (share < 1) {
    notes.push_back(absl::StrFormat(
        "the histogram's %d clients have %d rows of class %d, the data %d: each client gets %.4g of "
        "its rows of every class (partition.clients takes fewer clients)",
        clients, asked[scarce], scarce, there[scarce], share));
  }
  return share;
}

}  // namespace

absl::StatusOr<Histogram> ReadHistogram(const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError(
        "partition.scheme = histogram needs partition.path: a file with the rows of each class "
        "and client");
  }
  Digester digest;
  MACAW_ASSIGN_OR_RETURN(std::string bytes, ReadSource(path, digest));
  const bool archive = absl::StartsWith(bytes, absl::string_view("PK\x03\x04", 4));
  const bool array = absl::StartsWith(bytes, absl::string_view("\x93NUMPY", 6));
  const absl::StatusOr<Histogram> histogram = archive ? FromArchive(std::move(bytes), path)
                                              : array ? FromNpy(bytes, path)
                                                      : FromText(bytes, path);
  if (!histogram.ok()) return histogram;
  if (histogram->clients == 0 || histogram->classes == 0 || histogram->clients > UINT32_MAX)
    return absl::InvalidArgumentError(absl::StrCat(path, " holds no clients"));
  return histogram;
}

absl::StatusOr<HistogramDivision> DivideByHistogram(const PartitionOptions& options,
                                                    const Histogram& histogram, const Pool& pool) {
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(options.path, " ", why...));
  };
  if (pool.class_count == 0) return refuse("divides by class, but the data has regression targets");
  if (histogram.classes != static_cast<uint64_t>(pool.class_count)) {
    return refuse("has ", histogram.classes, " columns, a class each, but the data has ",
                  pool.class_count, " classes");
  }
  if (options.clients > histogram.clients) {
    return refuse("has ", histogram.clients, " clients, but partition.clients = ", options.clients);
  }
  HistogramDivision division;
  const std::vector<uint32_t> clients = ClientsOf(options, histogram.clients);
  std::vector<std::vector<uint32_t>> rows(histogram.classes);
  for (uint32_t row = 0; row < pool.rows; ++row)
    rows[static_cast<size_t>(pool.classes[row])].push_back(row);
  PerClass asked(histogram.classes), there(histogram.classes);
  for (uint64_t c = 0; c < histogram.classes; ++c) {
    there[c] = rows[c].size();
    for (const uint32_t client : clients) asked[c] += histogram.Of(client, c);
  }
  const absl::StatusOr<double> share = ShareOf(asked, there, clients.size(), division.notes);
  if (!share.ok()) return refuse(share.status().message());

  std::vector<std::vector<uint32_t>> of(clients.size());
  uint64_t given = 0;
  for (uint64_t c = 0; c < histogram.classes; ++c) {
    HistogramStream(options, kHistogramRows, c).Shuffle(std::span(rows[c]));
    // Systematic sampling: a client's number is its share rounded down or up, and right on average.
    const double offset = *share < 1 ? HistogramStream(options, kHistogramOffset, c).Uniform() : 0;
    double cumulated = offset;
    uint64_t begin = 0;
    for (size_t i = 0; i < clients.size(); ++i) {
      cumulated += *share * histogram.Of(clients[i], c);
      const auto end = std::min<uint64_t>(static_cast<uint64_t>(cumulated), rows[c].size());
      for (; begin < end; ++begin) of[i].push_back(rows[c][begin]);
    }
    given += begin;
  }
  uint64_t empty = 0;
  for (std::vector<uint32_t>& list : of) {
    std::ranges::sort(list);
    division.lists.rows.insert(division.lists.rows.end(), list.begin(), list.end());
    division.lists.begin.push_back(division.lists.rows.size());
    empty += list.empty() ? 1 : 0;
  }
  if (empty > 0)
    division.notes.push_back(absl::StrCat(empty, " clients of the histogram have no row"));
  if (given < pool.rows) {
    division.notes.push_back(absl::StrCat(pool.rows - given, " of the ", pool.rows,
                                          " training rows are no client's: the histogram has no "
                                          "place for them"));
  }
  if (clients.size() < histogram.clients) {
    for (const uint32_t client : clients) division.names.push_back(absl::StrCat(client));
  }
  return division;
}

}  // namespace macaw::data
