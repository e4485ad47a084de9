#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace macaw::cli {

// Whether the run of a folder has ended. Its summary.json says so, unless that is of an earlier
// session: a run that gets more rounds keeps the file until it has ended again.

// Whether the folder has a summary.json, and no row that is newer. A file that cannot be read
// counts: its reader says what is wrong with it. ReadResult (result.h) reads it in any case.
bool HasEnded(const std::string& folder);
// Why it has not, after the folder's name: " has no summary.json: the run is not over; …".
std::string NotEndedText(const std::string& folder);

// The round of the last whole row in metrics.jsonl; nullopt: there is none.
std::optional<uint32_t> LastRow(const std::string& folder);
// The round of the last row that summary.json knows; nullopt: it does not say. A run that was
// interrupted may have done a round without its row.
std::optional<uint32_t> LastRowOfSummary(const std::string& folder);

}  // namespace macaw::cli
