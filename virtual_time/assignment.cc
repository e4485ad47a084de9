#include "virtual_time/assignment.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "core/random.h"
#include "core/spelling.h"
#include "core/utf8.h"

namespace macaw::virtual_time {

absl::StatusOr<Assignment> Assignment::Make(const DevicesConfig& config, DrawOf what, size_t rows,
                                            std::span<const std::string> names,
                                            const Population& population,
                                            const std::string& table) {
  constexpr size_t kNamed = 3;
  Assignment assignment;
  assignment.seed_ = config.seed;
  assignment.what_ = what;
  assignment.rows_ = rows;
  if (config.assign != "name") return assignment;
  absl::flat_hash_map<absl::string_view, uint32_t> places;
  places.reserve(names.size());
  for (size_t row = 0; row < names.size(); ++row)
    places.emplace(names[row], static_cast<uint32_t>(row));
  std::vector<std::string> missing;  // the first of them
  uint64_t without = 0;
  assignment.by_client_.reserve(population.clients);
  for (ClientId client; client.value < population.clients; ++client.value) {
    const std::string name = population.name(client);
    const auto place = places.find(name);
    assignment.by_client_.push_back(place == places.end() ? 0 : place->second);
    if (place != places.end()) continue;
    if (++without <= kNamed) missing.push_back(absl::StrCat("\"", EscapeToUtf8(name), "\""));
  }
  if (without == 0) return assignment;
  return absl::InvalidArgumentError(
      absl::StrCat("devices.assign = \"name\": ", table, " has no row for ", without, " of ",
                   Counted(population.clients, "client"), ": ", absl::StrJoin(missing, ", "),
                   without > kNamed ? ", …" : "", "; add rows, or set devices.assign = \"seed\""));
}

size_t Assignment::Of(ClientId client) const {
  if (!by_client_.empty()) return by_client_[client.value];
  RandomStream stream({.seed = seed_,
                       .purpose = Purpose::kDuration,
                       .client = client,
                       .extra = static_cast<uint64_t>(what_)});
  return stream.Below(rows_);
}

}  // namespace macaw::virtual_time
