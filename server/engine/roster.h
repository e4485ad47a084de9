#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "core/digest.h"
#include "core/ids.h"
#include "plan/named_groups.h"
#include "proto/fleet/client_table.h"
#include "proto/fleet/messages.h"

namespace macaw::server {

// A set of clients whose rows lie together: on one node (its owner), or on every node with the same
// data. A client belongs to one holding, and is trained by a node that has this holding. Holdings
// are numbered from 0 in the order of registration.
using HoldingId = StrongId<struct HoldingTag, uint32_t>;

// What decides the numbers of clients whose names are known.
enum class Numbering : uint8_t {
  kByName,   // NameBefore
  kByPlace,  // their order in the data (log::RunOpened::keeps_places)
};

// The clients of a run: their names, their numbers of rows, and their holdings. Nodes bring
// holdings until the run begins. Then the clients get the numbers 0 … N−1 in the order of their
// names (digits compare as numbers: "7" < "10"). So neither the order of registration nor the
// division among nodes changes a result. A simulation has one holding, whose client k is named "k".
// Pure; one thread. Memory: 4 to 16 bytes per client, 16 to 28 with more than one holding.
class Roster {
 public:
  // Whether a node with this holding and test set may register. The error says why not, in words
  // that can follow "worker X cannot join: ". Changes nothing.
  absl::Status Check(const fleet::RegisterRequest& node, const fleet::ClientTable& table) const;
  // Returns the node's holding, and adds it if it is new. Call it only after Check returned OK.
  HoldingId Add(const fleet::RegisterRequest& node, fleet::ClientTable table);
  // The owner's own holding whose place this one takes: it has changed its rows, or its clients,
  // before the run begins.
  std::optional<HoldingId> Replaces(const fleet::RegisterRequest& node) const;
  // How many clients there are with this node's.
  uint64_t ClientsWith(const fleet::RegisterRequest& node) const;

  // The owner of the holding has gone before the run begins. It says its names again when it comes
  // back. Names that nodes share stay.
  void ForgetNames(HoldingId holding);

  // Numbers the clients. Nodes that register later may only bring known holdings. `eligible`:
  // patterns of the names of the clients that may be drawn; none: everybody.
  // `groups`: by their names, of evaluation.groups.
  // `numbering`: where there are patterns, of the clients of a node that has all and owns none.
  // Returns which patterns of groups put no client there (GroupMatches::Unmatched).
  std::string Begin(const std::vector<std::string>& eligible = {}, const NamedGroups& groups = {},
                    Numbering numbering = Numbering::kByName);
  bool begun() const { return begun_; }

  std::optional<HoldingId> Find(const Digest& data) const;
  bool HasTable(const Digest& table) const { return tables_.contains(table); }
  uint64_t clients() const { return clients_; }
  uint32_t holdings() const { return static_cast<uint32_t>(holdings_.size()); }
  // The only node that may bring the holding. Empty: any node with the same data may bring it.
  const std::string& owner_of(HoldingId holding) const { return At(holding).owner; }
  uint64_t clients_of(HoldingId holding) const { return At(holding).clients; }
  uint64_t central_test_rows() const { return central_rows_; }  // 0: no node has brought a test set
  uint64_t central_val_rows() const { return central_val_rows_; }
  bool has_central_rows() const { return central_rows_ > 0 || central_val_rows_ > 0; }
  // Digest of all data of the run: of the only holding, or over all holdings ordered by digest.
  Digest data_digest() const;

  // Available once begun, by client id:
  const std::vector<uint32_t>& rows() const { return rows_; }      // training rows
  const std::vector<uint32_t>& tokens() const { return tokens_; }  // in them; empty: no sequences
  uint32_t TestRowsOf(ClientId client) const { return In(test_rows_, client); }
  uint32_t ValidationRowsOf(ClientId client) const { return In(validation_rows_, client); }
  HoldingId HoldingOf(ClientId client) const {
    return holding_.empty() ? first_ : holding_[client.value];
  }
  // The group of evaluation.groups; nothing: none.
  std::optional<uint32_t> GroupOf(ClientId client) const {
    if (groups_.empty() || groups_[client.value] == 0) return std::nullopt;
    return groups_[client.value] - 1;
  }
  bool MayBeDrawn(ClientId client) const {  // by its name
    return matches_.empty() || matches_[client.value];
  }
  uint64_t PlaceOf(ClientId client) const {  // in its holding
    return place_.empty() ? client.value : place_[client.value];
  }

 private:
  struct Holding {
    Digest data;
    Digest table;  // of the table of its clients
    std::string owner;
    std::string brought_by;
    // What the numbers of columns and classes mean: digests of names; zero: its node did not say.
    Digest features, classes;
    uint64_t clients = 0;
    fleet::ClientTable content;  // until the run begins
  };
  const Holding& At(HoldingId holding) const { return holdings_[holding.value]; }
  absl::Status CheckKnown(const Holding& known, const fleet::RegisterRequest& node) const;
  std::optional<HoldingId> Named(const std::string& name) const;
  // Forgets what Add has noted of the holding, whose number stays.
  void Clear(HoldingId holding);
  // The node's own holding, of which it may say other things: the run has not begun.
  std::optional<HoldingId> OwnOf(const fleet::RegisterRequest& node) const;
  absl::Status CheckNames(const fleet::RegisterRequest& node) const;
  absl::Status CheckNew(const fleet::RegisterRequest& node, const fleet::ClientTable& table) const;

  bool begun_ = false;
  std::vector<Holding> holdings_;
  absl::flat_hash_map<Digest, HoldingId> by_data_;
  absl::flat_hash_set<Digest> tables_;
  // Until the run begins: the holding in which each name occurs, that of each owner, and the
  // holding without names.
  absl::flat_hash_map<std::string, HoldingId> names_, owned_;
  std::optional<HoldingId> unnamed_;
  HoldingId first_;  // the first holding with clients
  bool sequences_ = false;
  uint64_t clients_ = 0;
  uint64_t central_rows_ = 0, central_val_rows_ = 0;
  Digest central_digest_;
  std::string central_from_;

  static uint32_t In(const std::vector<uint32_t>& column, ClientId client) {
    return column.empty() ? 0 : column[client.value];
  }

  std::vector<uint32_t> rows_, tokens_;
  std::vector<uint32_t> test_rows_, validation_rows_;  // by client; empty: no client has any
  std::vector<HoldingId> holding_;  // by client; empty: all clients are in `first_`, in its order
  std::vector<uint64_t> place_;
  std::vector<bool> matches_;     // by client; empty: everybody may be drawn
  std::vector<uint32_t> groups_;  // by client, from 1, 0: none; empty: there are no groups
};

// The order of clients' names: runs of digits compare as numbers, everything else by byte.
bool NameBefore(absl::string_view a, absl::string_view b);

}  // namespace macaw::server
