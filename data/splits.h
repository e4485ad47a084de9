#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "data/examples.h"
#include "data/options.h"

namespace macaw::data {

// Lists of row numbers, one per client, stored in one array: rows[begin[c] ... begin[c+1]-1].
struct RowLists {
  std::vector<uint32_t> rows;
  std::vector<uint64_t> begin = {0};
  uint64_t clients() const { return begin.size() - 1; }
  std::span<const uint32_t> Of(uint64_t client) const {
    return std::span(rows).subspan(begin[client], begin[client + 1] - begin[client]);
  }
};

// Which rows of a block belong to which client, and for which split. Lists 3c, 3c+1 and 3c+2 are
// client c's training, validation and test rows.
struct Division {
  RowLists lists;
  std::vector<uint32_t> central_test;
  std::vector<uint32_t> central_val;
  std::vector<std::string> names;  // empty: clients are named by their numbers
  std::vector<std::string> notes;  // DatasetInfo::notes
  bool divided = false;            // DatasetInfo::divided
  uint64_t clients() const { return lists.clients() / 3; }
  std::span<const uint32_t> Of(ClientId client, Split split) const {
    return lists.Of(3 * client.value + static_cast<uint64_t>(split));
  }
};

// What is cut off a client's rows. The numbers are part of every result.
enum class SplitOf : uint8_t { kClientTest = 6, kValidation = 7, kTuning = 8 };

// Adds a note where data with test rows of its own leaves a data.test_fraction that was asked for
// without an effect.
void NoteOwnTestSet(const DataOptions& options, std::vector<std::string>& notes);

// `result[c]`: client c never trains. ⌊fraction · clients⌋ clients, drawn from the seed.
std::vector<bool> HeldoutClients(const DataOptions& options, uint64_t clients);

// The rows before they are partitioned: the central sets and the rest; all ascending.
struct CentralCut {
  std::vector<uint32_t> train;
  std::vector<uint32_t> test;
  std::vector<uint32_t> val;
};
// Divides `range` into the central test set (round(test_fraction · rows) rows) and the rest.
CentralCut CutTestSet(const DataOptions& options, RowRange range);
// Moves round(central_val_fraction · rows) of the training rows to the central validation set. The
// fraction counts `rows`, so that both fractions are of the same rows.
void CutCentralValidation(const DataOptions& options, uint64_t rows, CentralCut& cut);

// How many of a client's `rows` a fraction is: one of the two whole numbers beside fraction · rows,
// drawn so that the mean over clients is fraction · rows. (Rounded down, small clients would have
// none.) At most `most`.
uint64_t CountOf(const DataOptions& options, SplitOf split, ClientId client, uint64_t rows,
                 uint64_t most);

// The rows that the data itself gives each client to validate and to test: as many lists as there
// are clients, or none.
struct OwnRows {
  RowLists validation, test;
};

// Splits every client's rows by client_test_fraction and val_fraction (CountOf them each, drawn
// from the seed; one row is left to train on), and by heldout_clients and heldout_tuning (one row
// is left to test). The clients' own rows stay what they are, behind those that are drawn. The
// stored order is kept.
RowLists SplitClients(const DataOptions& options, const RowLists& rows, const OwnRows& own = {});

}  // namespace macaw::data
