#include "data/splits.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/fraction.h"
#include "core/random.h"

namespace macaw::data {
namespace {

// 6 to 8 are the draws of SplitOf.
enum SplitDraw : uint64_t {
  kHeldout = 1,
  kTestSet = 2,
  kValidation = 3,
  kClientTest = 4,
  kTuning = 5,
  kCentralValidation = 9
};

RandomStream Stream(const DataOptions& options, SplitDraw what, uint64_t client = 0) {
  return RandomStream({.seed = options.seed,
                       .purpose = Purpose::kSplit,
                       .client = ClientId(client),
                       .extra = what});
}

std::vector<bool> Draw(RandomStream stream, uint64_t population, uint64_t count) {
  std::vector<bool> drawn(population);
  for (const uint64_t i : SampleWithoutReplacement(stream, population, count)) drawn[i] = true;
  return drawn;
}

struct CutRows {
  std::vector<uint32_t> rest, off;
};

// Draws `count` of `rows`.
CutRows CutOff(std::span<const uint32_t> rows, uint64_t count, RandomStream stream) {
  const std::vector<bool> drawn = Draw(stream, rows.size(), count);
  CutRows cut;
  for (size_t i = 0; i < rows.size(); ++i) (drawn[i] ? cut.off : cut.rest).push_back(rows[i]);
  return cut;
}

double FractionOf(const DataOptions& options, SplitOf split) {
  switch (split) {
    case SplitOf::kClientTest:
      return options.client_test_fraction;
    case SplitOf::kValidation:
      return options.val_fraction;
    case SplitOf::kTuning:
      break;
  }
  return options.heldout_tuning;
}

}  // namespace

uint64_t CountOf(const DataOptions& options, SplitOf split, ClientId client, uint64_t rows,
                 uint64_t most) {
  const double fraction = FractionOf(options, split);
  uint64_t count = FloorOf(fraction, rows);
  const double rest = fraction * static_cast<double>(rows) - static_cast<double>(count);
  // Where the product is whole, no binary rest of the decimal is drawn.
  constexpr double kLeast = 1e-9;
  if (rest > kLeast) {
    RandomStream stream = Stream(options, static_cast<SplitDraw>(split), client.value);
    if (stream.Uniform() < rest) ++count;
  }
  return std::min(count, most);
}

void NoteOwnTestSet(const DataOptions& options, std::vector<std::string>& notes) {
  if (options.test_fraction.value_or(0) == 0) return;
  notes.push_back(absl::StrCat(
      "the data says itself which rows train and which are tests; data.test_fraction = ",
      *options.test_fraction, " has no effect"));
}

std::vector<bool> HeldoutClients(const DataOptions& options, uint64_t clients) {
  return Draw(Stream(options, kHeldout), clients, FloorOf(options.heldout_clients, clients));
}

CentralCut CutTestSet(const DataOptions& options, RowRange range) {
  const double wanted = options.TestFraction() * static_cast<double>(range.size());
  const std::vector<bool> is_test =
      Draw(Stream(options, kTestSet), range.size(), static_cast<uint64_t>(std::llround(wanted)));
  CentralCut cut;
  for (uint64_t i = 0; i < range.size(); ++i) {
    (is_test[i] ? cut.test : cut.train).push_back(static_cast<uint32_t>(range.begin + i));
  }
  return cut;
}

void CutCentralValidation(const DataOptions& options, uint64_t rows, CentralCut& cut) {
  if (options.central_val_fraction == 0) return;
  const auto wanted =
      static_cast<uint64_t>(std::llround(options.central_val_fraction * static_cast<double>(rows)));
  const uint64_t count = std::min<uint64_t>(wanted, cut.train.size());
  const std::vector<bool> drawn =
      Draw(Stream(options, kCentralValidation), cut.train.size(), count);
  std::vector<uint32_t> rest;
  rest.reserve(cut.train.size() - count);
  for (size_t i = 0; i < cut.train.size(); ++i) (drawn[i] ? cut.val : rest).push_back(cut.train[i]);
  cut.train = std::move(rest);
}

RowLists SplitClients(const DataOptions& options, const RowLists& rows, const OwnRows& own_rows) {
  RowLists split;
  split.rows.reserve(rows.rows.size() + own_rows.validation.rows.size() +
                     own_rows.test.rows.size());
  split.begin.reserve(3 * rows.clients() + 1);
  const std::vector<bool> heldout = HeldoutClients(options, rows.clients());
  const auto append = [&split](uint32_t row) { split.rows.push_back(row); };
  const auto end_list = [&split] { split.begin.push_back(split.rows.size()); };
  const auto append_own = [&append](const RowLists& lists, uint64_t client) {
    if (lists.clients() == 0) return;
    for (const uint32_t row : lists.Of(client)) append(row);
  };
  for (uint64_t client = 0; client < rows.clients(); ++client) {
    const std::span<const uint32_t> own = rows.Of(client);
    const uint64_t most = own.empty() ? 0 : own.size() - 1;
    const auto count = [&](SplitOf what, uint64_t at_most) {
      return CountOf(options, what, ClientId(client), own.size(), at_most);
    };
    if (heldout[client]) {
      end_list();
      const CutRows tuning_cut =
          CutOff(own, count(SplitOf::kTuning, most), Stream(options, kTuning, client));
      for (const uint32_t row : tuning_cut.off) append(row);
      append_own(own_rows.validation, client);
      end_list();
      for (const uint32_t row : tuning_cut.rest) append(row);
    } else {
      const uint64_t tests = count(SplitOf::kClientTest, most);
      const CutRows test_cut = CutOff(own, tests, Stream(options, kClientTest, client));
      const CutRows validation_cut =
          CutOff(test_cut.rest, count(SplitOf::kValidation, most - tests),
                 Stream(options, kValidation, client));
      for (const uint32_t row : validation_cut.rest) append(row);
      end_list();
      for (const uint32_t row : validation_cut.off) append(row);
      append_own(own_rows.validation, client);
      end_list();
      for (const uint32_t row : test_cut.off) append(row);
    }
    append_own(own_rows.test, client);
    end_list();
  }
  return split;
}

}  // namespace macaw::data
