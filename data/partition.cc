#include "data/partition.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/random.h"
#include "core/status.h"

namespace macaw::data {
namespace {

using Owners = std::vector<uint32_t>;
using Positions = std::vector<uint32_t>;

// One random stream per decision, so that a change of one scheme does not change the others' bits.
RandomStream Stream(const PartitionOptions& options, uint64_t what, uint64_t which = 0) {
  return RandomStream({.seed = options.seed,
                       .purpose = Purpose::kPartition,
                       .client = ClientId(which),
                       .extra = what});
}
enum PartitionDraw : uint64_t {
  kOrder = 1,
  kShares = 2,
  kClassOrder = 3,
  kDeal = 4,
  kRest = 5,
  kQuantities = 6
};

Positions Shuffled(uint64_t count, RandomStream stream) {
  Positions positions(count);
  std::iota(positions.begin(), positions.end(), 0U);
  stream.Shuffle(std::span(positions));
  return positions;
}

// The rows of each class, in random order.
std::vector<Positions> ByClass(const PartitionOptions& options, const Pool& pool) {
  std::vector<Positions> by_class(static_cast<size_t>(pool.class_count));
  for (uint32_t row = 0; row < pool.rows; ++row) {
    by_class[static_cast<size_t>(pool.classes[row])].push_back(row);
  }
  for (size_t c = 0; c < by_class.size(); ++c) {
    Stream(options, kClassOrder, c).Shuffle(std::span(by_class[c]));
  }
  return by_class;
}

// Divides `rows` in proportion to `weights`: client i's rows end where the cumulated weight does.
void Cut(const Positions& rows, const std::vector<double>& weights, Owners& owners) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double cumulated = 0;
  uint64_t begin = 0;
  for (size_t client = 0; client < weights.size(); ++client) {
    cumulated += weights[client];
    const double end_share = cumulated / total * static_cast<double>(rows.size());
    uint64_t end = std::min<uint64_t>(static_cast<uint64_t>(end_share + 1e-9), rows.size());
    if (client + 1 == weights.size()) end = rows.size();
    for (; begin < end; ++begin) owners[rows[begin]] = static_cast<uint32_t>(client);
  }
}

absl::StatusOr<Owners> Iid(const PartitionOptions& options, const Pool& pool) {
  Owners owners(pool.rows);
  Cut(Shuffled(pool.rows, Stream(options, kOrder)), std::vector<double>(options.clients, 1.0),
      owners);
  return owners;
}

absl::StatusOr<Owners> Shards(const PartitionOptions& options, const Pool& pool) {
  const uint64_t shards = options.clients * uint64_t{options.classes_per_client};
  if (shards == 0 || shards > pool.rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("partition.clients x classes_per_client = ", shards,
                     " shards cannot be cut from ", pool.rows, " rows"));
  }
  Positions sorted;
  for (const Positions& rows : ByClass(options, pool))
    sorted.insert(sorted.end(), rows.begin(), rows.end());
  const Positions deal = Shuffled(shards, Stream(options, kDeal));
  Owners owners(pool.rows);
  for (uint64_t shard = 0; shard < shards; ++shard) {
    const uint64_t begin = pool.rows * shard / shards, end = pool.rows * (shard + 1) / shards;
    for (uint64_t i = begin; i < end; ++i) {
      owners[sorted[i]] = static_cast<uint32_t>(deal[shard] / options.classes_per_client);
    }
  }
  return owners;
}

// No randomness: rows keep their stored order within a class, and client i gets the i-th block.
absl::StatusOr<Owners> Sorted(const PartitionOptions& options, const Pool& pool) {
  Positions rows(pool.rows);
  std::iota(rows.begin(), rows.end(), 0U);
  std::stable_sort(rows.begin(), rows.end(),
                   [&](uint32_t a, uint32_t b) { return pool.classes[a] < pool.classes[b]; });
  Owners owners(pool.rows);
  for (uint64_t client = 0; client < options.clients; ++client) {
    const uint64_t begin = pool.rows * client / options.clients;
    const uint64_t end = pool.rows * (client + 1) / options.clients;
    for (uint64_t i = begin; i < end; ++i) owners[rows[i]] = static_cast<uint32_t>(client);
  }
  return owners;
}

absl::StatusOr<Owners> DirichletClass(const PartitionOptions& options, const Pool& pool) {
  Owners owners(pool.rows);
  const std::vector<Positions> by_class = ByClass(options, pool);
  for (size_t c = 0; c < by_class.size(); ++c) {
    if (by_class[c].empty()) continue;
    RandomStream stream = Stream(options, kShares, c);
    Cut(by_class[c], stream.Dirichlet(options.concentration, options.clients), owners);
  }
  return owners;
}

// The rows of each class that are still free, and drawing from them in one client's proportions.
class ClassPools {
 public:
  explicit ClassPools(std::vector<Positions> pools)
      : pools_(std::move(pools)), cumulated_(pools_.size()) {}

  // Sets the proportions. Classes without free rows do not count; if only those have a share, all
  // free rows count.
  void Prefer(const std::vector<double>& shares) {
    double sum = 0;
    for (size_t c = 0; c < pools_.size(); ++c) {
      if (!pools_[c].empty()) sum += shares[c];
      cumulated_[c] = sum;
    }
    if (sum > 0 && std::isfinite(1.0 / sum)) return;
    sum = 0;
    for (size_t c = 0; c < pools_.size(); ++c)
      cumulated_[c] = sum += static_cast<double>(pools_[c].size());
  }

  uint32_t Draw(RandomStream& stream, const std::vector<double>& shares) {
    const double at = stream.Uniform() * cumulated_.back();
    auto c = static_cast<size_t>(std::upper_bound(cumulated_.begin(), cumulated_.end(), at) -
                                 cumulated_.begin());
    // Rounding may select a position behind the last class with a share.
    while (c >= pools_.size() || pools_[c].empty()) c = c == 0 ? pools_.size() - 1 : c - 1;
    const uint32_t row = pools_[c].back();
    pools_[c].pop_back();
    if (pools_[c].empty()) Prefer(shares);
    return row;
  }

 private:
  std::vector<Positions> pools_;
  std::vector<double> cumulated_;
};

absl::StatusOr<Owners> DirichletClient(const PartitionOptions& options, const Pool& pool) {
  Owners owners(pool.rows);
  ClassPools pools(ByClass(options, pool));
  // In random order, because the last clients get only what the others left.
  const Positions order = Shuffled(options.clients, Stream(options, kDeal));
  for (uint64_t i = 0; i < options.clients; ++i) {
    const uint64_t size = pool.rows * (i + 1) / options.clients - pool.rows * i / options.clients;
    RandomStream stream = Stream(options, kShares, order[i]);
    const std::vector<double> shares =
        stream.Dirichlet(options.concentration, static_cast<size_t>(pool.class_count));
    pools.Prefer(shares);
    for (uint64_t n = 0; n < size; ++n) owners[pools.Draw(stream, shares)] = order[i];
  }
  return owners;
}

absl::StatusOr<Owners> KClasses(const PartitionOptions& options, const Pool& pool) {
  const std::vector<Positions> by_class = ByClass(options, pool);
  std::vector<uint32_t> present;
  for (uint32_t c = 0; c < by_class.size(); ++c) {
    if (!by_class[c].empty()) present.push_back(c);
  }
  const uint64_t k = options.classes_per_client;
  if (k == 0 || k > present.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "partition.classes_per_client = ", k, ", but the data has ", present.size(), " classes"));
  }
  if (options.clients * k < present.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "partition.clients x classes_per_client = ", options.clients * k, ", but the data has ",
        present.size(), " classes: some classes would have no client"));
  }
  // Each client gets the next classes of a shuffled deck, and a new deck is shuffled when one is
  // used up. So all classes have about equally many clients.
  std::vector<std::vector<uint32_t>> class_owners(by_class.size());
  RandomStream stream = Stream(options, kDeal);
  std::vector<uint32_t> deck, hand;
  for (uint32_t client = 0; client < options.clients; ++client) {
    hand.clear();
    while (hand.size() < k) {
      if (deck.empty()) {
        deck = present;
        stream.Shuffle(std::span(deck));
      }
      size_t card = deck.size() - 1;  // the last class that the client does not have yet
      while (card > 0 && std::find(hand.begin(), hand.end(), deck[card]) != hand.end()) --card;
      hand.push_back(deck[card]);
      deck.erase(deck.begin() + static_cast<ptrdiff_t>(card));
      class_owners[hand.back()].push_back(client);
    }
  }
  Owners owners(pool.rows);
  for (size_t c = 0; c < by_class.size(); ++c) {
    const uint64_t sharers = class_owners[c].size(), rows = by_class[c].size();
    if (sharers > 0) Stream(options, kRest, c).Shuffle(std::span(class_owners[c]));
    for (uint64_t s = 0; s < sharers; ++s) {
      for (uint64_t i = rows * s / sharers; i < rows * (s + 1) / sharers; ++i) {
        owners[by_class[c][i]] = class_owners[c][s];
      }
    }
  }
  return owners;
}

absl::StatusOr<Owners> LogNormal(const PartitionOptions& options, const Pool& pool) {
  RandomStream stream = Stream(options, kShares);
  std::vector<double> weights(options.clients);
  // Keeps even the largest weights of σ = 50 finite.
  for (double& w : weights) w = std::exp(std::min(options.concentration * stream.Normal(), 600.0));
  Owners owners(pool.rows);
  Cut(Shuffled(pool.rows, Stream(options, kOrder)), weights, owners);
  return owners;
}

absl::StatusOr<Owners> DirichletQuantity(const PartitionOptions& options, const Pool& pool) {
  RandomStream stream = Stream(options, kQuantities);
  Owners owners(pool.rows);
  Cut(Shuffled(pool.rows, Stream(options, kOrder)),
      stream.Dirichlet(options.concentration, options.clients), owners);
  return owners;
}

absl::StatusOr<Owners> PowerLaw(const PartitionOptions& options, const Pool& pool) {
  const Positions rank = Shuffled(options.clients, Stream(options, kShares));
  std::vector<double> weights(options.clients);
  for (size_t c = 0; c < weights.size(); ++c)
    weights[c] = std::pow(rank[c] + 1.0, -options.concentration);
  Owners owners(pool.rows);
  Cut(Shuffled(pool.rows, Stream(options, kOrder)), weights, owners);
  return owners;
}

// Brings every client to `min_size` rows. The largest clients are reduced to a common size, and the
// rows that each gives away are drawn in one seeded pass. Requires clients x min_size <= rows.
void MoveToMinimum(const PartitionOptions& options, Owners& owners) {
  std::vector<uint64_t> size(options.clients);
  for (const uint32_t owner : owners) ++size[owner];
  uint64_t missing = 0;
  for (const uint64_t n : size) missing += n < options.min_size ? options.min_size - n : 0;
  if (missing == 0) return;

  uint64_t level = *std::max_element(size.begin(), size.end());
  std::vector<uint32_t> clients_of_size(level + 1);
  for (const uint64_t n : size) ++clients_of_size[n];
  uint64_t given = 0;
  for (uint64_t above = 0; given < missing; --level) given += above += clients_of_size[level];
  uint64_t too_many = given - missing;  // at the last level, so many clients keep one more row

  std::vector<uint64_t> gives(options.clients);
  for (const uint32_t client : Shuffled(options.clients, Stream(options, kRest, 1))) {
    if (size[client] <= level) continue;
    gives[client] = size[client] - level;
    if (too_many > 0) --gives[client], --too_many;
  }
  uint32_t receiver = 0;
  for (const uint32_t row : Shuffled(owners.size(), Stream(options, kRest, 2))) {
    const uint32_t giver = owners[row];
    if (gives[giver] == 0) continue;
    --gives[giver];
    while (size[receiver] >= options.min_size) ++receiver;
    owners[row] = receiver;
    ++size[receiver];
  }
}

using Scheme = absl::StatusOr<Owners> (*)(const PartitionOptions&, const Pool&);

struct Entry {
  const char* name;
  Scheme scheme;  // null: the data or a file decides
  bool by_class;
  const char* description;
};

constexpr Entry kSchemes[] = {
    {"auto", nullptr, false, "natural where the source has clients of its own, else iid"},
    {"iid", Iid, false, "rows at random, equally many each"},
    {"shards", Shards, true,
     "sorted by class and cut into clients x classes_per_client shards, dealt at random (McMahan "
     "2017)"},
    {"sorted", Sorted, true,
     "sorted by class, in stored order within one, and cut into equal blocks: client i has the "
     "i-th"},
    {"dirichlet-class", DirichletClass, true,
     "per class, shares of the clients ~ Dirichlet(concentration); classes and sizes skewed "
     "(NIID-bench)"},
    {"dirichlet-client", DirichletClient, true,
     "per client, shares of the classes ~ Dirichlet(concentration); equal sizes (Hsu 2019)"},
    {"dirichlet-quantity", DirichletQuantity, false,
     "rows at random, shares of all rows ~ Dirichlet(concentration) over clients (NIID-bench's "
     "quantity skew)"},
    {"k-classes", KClasses, true,
     "classes_per_client classes each, a class's rows equally among its owners"},
    {"lognormal", LogNormal, false, "rows at random, sizes ~ LogNormal(0, concentration)"},
    {"power-law", PowerLaw, false, "rows at random, the r-th largest size ~ r^-concentration"},
    {"natural", nullptr, false,
     "the source's own clients (LEAF's users, data.client_column of a CSV file, a prepared "
     "file's)"},
    {kHistogramScheme, nullptr, true,
     "rows of each class for each client as the matrix in partition.path says, drawn at "
     "random"},
    {"file", nullptr, false,
     "as partition.path says: {\"client\": [row, ...], ..., \"test\": [...]} "
     "(docs/guides/data.md)"},
};

}  // namespace

absl::StatusOr<std::vector<uint32_t>> AssignOwners(const PartitionOptions& options,
                                                   const Pool& pool) {
  const auto entry = std::find_if(std::begin(kSchemes), std::end(kSchemes),
                                  [&](const Entry& e) { return options.scheme == e.name; });
  if (entry == std::end(kSchemes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "partition.scheme \"", options.scheme, "\" is not known; choose one of ",
        absl::StrJoin(kSchemes, ", ", [](std::string* out, const Entry& e) { *out += e.name; })));
  }
  if (entry->scheme == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("partition.scheme \"", options.scheme, "\" does not divide rows by itself"));
  }
  if (entry->by_class && pool.class_count == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("partition.scheme \"", options.scheme,
                     "\" divides by class, but the data has regression targets"));
  }
  if (!(options.concentration > 0) || !std::isfinite(options.concentration)) {
    return absl::InvalidArgumentError(
        absl::StrCat("partition.concentration = ", options.concentration, " must be above 0"));
  }
  uint64_t needed = 0;
  if (options.clients == 0 || options.clients > UINT32_MAX ||
      __builtin_mul_overflow(options.clients, uint64_t{options.min_size}, &needed) ||
      needed > pool.rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("partition.clients = ", options.clients, " with min_size = ", options.min_size,
                     " cannot be had from ", pool.rows, " training rows"));
  }
  MACAW_ASSIGN_OR_RETURN(Owners owners, entry->scheme(options, pool));
  MoveToMinimum(options, owners);
  return owners;
}

std::vector<Choice> PartitionSchemes() {
  std::vector<Choice> schemes;
  for (const Entry& entry : kSchemes) schemes.push_back({entry.name, entry.description});
  return schemes;
}

}  // namespace macaw::data
