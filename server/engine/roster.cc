#include "server/engine/roster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace macaw::server {
namespace {

absl::Status No(const std::string& why) { return absl::FailedPreconditionError(why); }

// Removes the leading run of digits from `text` and returns it without leading zeros.
absl::string_view TakeNumber(absl::string_view& text) {
  size_t end = 0;
  while (end < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[end]))) ++end;
  size_t begin = 0;
  while (begin + 1 < end && text[begin] == '0') ++begin;
  const absl::string_view number = text.substr(begin, end - begin);
  text.remove_prefix(end);
  return number;
}

}  // namespace

bool NameBefore(absl::string_view a, absl::string_view b) {
  const absl::string_view whole_a = a, whole_b = b;
  const auto digit = [](absl::string_view text) {
    return !text.empty() && absl::ascii_isdigit(static_cast<unsigned char>(text[0]));
  };
  while (!a.empty() && !b.empty()) {
    if (digit(a) && digit(b)) {
      const absl::string_view x = TakeNumber(a), y = TakeNumber(b);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (a[0] != b[0]) return static_cast<unsigned char>(a[0]) < static_cast<unsigned char>(b[0]);
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;  // "07" and "7" are different names and need an order
}

std::optional<HoldingId> Roster::Find(const Digest& data) const {
  const auto it = by_data_.find(data);
  return it != by_data_.end() ? std::optional(it->second) : std::nullopt;
}

absl::Status Roster::Check(const fleet::RegisterRequest& node,
                           const fleet::ClientTable& table) const {
  if (node.has_central_rows() && has_central_rows()) {
    if (node.central_test_rows != central_rows_) return No("its test set has another size");
    if (node.central_val_rows != central_val_rows_)
      return No("its central validation set has another size");
    if (node.central_test_digest != central_digest_) {
      return No(absl::StrCat("its test set differs from that of worker \"", central_from_,
                             "\" (other files or preparation)"));
    }
  }
  MACAW_RETURN_IF_ERROR(CheckNames(node));
  if (node.clients != table.clients()) {
    return No(absl::StrCat("it reports ", node.clients, " clients but sample counts of ",
                           table.clients()));
  }
  if (node.clients == 0 && !node.has_central_rows())
    return No("it holds neither clients nor the central test set");
  const std::optional<HoldingId> known = Find(node.data_digest);
  return known.has_value() ? CheckKnown(At(*known), node) : CheckNew(node, table);
}

std::optional<HoldingId> Roster::OwnOf(const fleet::RegisterRequest& node) const {
  if (begun_ || !node.owner) return std::nullopt;
  const std::optional<HoldingId> known = Find(node.data_digest);
  return known.has_value() && At(*known).owner == node.name ? known : Replaces(node);
}

// The same columns in another order train, and what comes out is wrong in silence.
absl::Status Roster::CheckNames(const fleet::RegisterRequest& node) const {
  const std::optional<HoldingId> own = OwnOf(node);
  const auto check = [&](const Digest& said, Digest Holding::*names, const char* what,
                         const char* how) {
    if (said.IsZero()) return absl::OkStatus();
    for (uint32_t h = 0; h < holdings(); ++h) {
      const Holding& other = holdings_[h];
      if (own == HoldingId(h) || (other.*names).IsZero()) continue;
      if (said == other.*names) break;  // so do all others
      return No(absl::StrCat("its ", what, " have other names, or another order, than those of ",
                             "worker \"", other.brought_by, "\": ", how));
    }
    return absl::OkStatus();
  };
  MACAW_RETURN_IF_ERROR(check(node.feature_names, &Holding::features, "columns of features",
                              "every node has the same columns in the same order"));
  return check(node.class_names, &Holding::classes, "classes",
               "data.class_names is the same list on every node");
}

absl::Status Roster::CheckKnown(const Holding& known, const fleet::RegisterRequest& node) const {
  const std::string owner = node.owner ? node.name : "";
  if (owner != known.owner) {
    return No(absl::StrCat("its clients are ", known.owner.empty() ? "held" : "owned",
                           " by worker \"", known.brought_by,
                           "\"; an owner's clients are trained by its node alone, and a node that "
                           "takes its place enrols under its name"));
  }
  if (node.table.digest != known.table || node.clients != known.clients) {
    return No(absl::StrCat("it says other things of its clients than worker \"", known.brought_by,
                           "\", whose data has the same digest"));
  }
  return absl::OkStatus();
}

absl::Status Roster::CheckNew(const fleet::RegisterRequest& node,
                              const fleet::ClientTable& table) const {
  if (node.clients == 0) return absl::OkStatus();
  const auto differs = [&](HoldingId from, const std::string& how) {
    return No(absl::StrCat("its data differs from that of worker \"", At(from).brought_by,
                           "\" (other files, partition or seed): ", how));
  };
  if (begun_ && node.owner &&
      std::ranges::any_of(holdings_, [&](const Holding& own) { return own.owner == node.name; })) {
    return No(
        "its rows are not those with which the run began: give it those again, or let it take part "
        "in the next run");
  }
  if (begun_ && node.owner) {
    return No(absl::StrCat("the run has begun without it, with its ", clients_,
                           " clients: its own can take part in the next run"));
  }
  if (begun_) return differs(first_, "the run has begun without it");
  if (clients_ > 0 && table.tokens.empty() != !sequences_)
    return differs(first_, "sequences are in one of them only");
  const std::optional<HoldingId> replaced = Replaces(node);
  for (uint64_t place = 0; place < table.clients(); ++place) {
    const std::optional<HoldingId> other = Named(table.NameOf(place));
    if (other.has_value() && other == replaced) continue;
    if (other.has_value() && (node.owner || !At(*other).owner.empty())) {
      return No(absl::StrCat("it brings a client named \"", table.NameOf(place),
                             "\", and so does worker \"", At(*other).brought_by,
                             "\": a client's rows are on one node"));
    }
    if (other.has_value())
      return differs(*other, absl::StrCat("both have a client ", table.NameOf(place)));
    if (clients_ == 0) break;
  }
  return absl::OkStatus();
}

// The holding that has a client of this name.
std::optional<HoldingId> Roster::Named(const std::string& name) const {
  if (const auto it = names_.find(name); it != names_.end()) return it->second;
  uint64_t number = 0;
  const bool is_number = absl::SimpleAtoi(name, &number) && absl::StrCat(number) == name;
  if (is_number && unnamed_.has_value() && number < At(*unnamed_).clients) return unnamed_;
  return std::nullopt;
}

std::optional<HoldingId> Roster::Replaces(const fleet::RegisterRequest& node) const {
  if (begun_ || !node.owner || Find(node.data_digest).has_value()) return std::nullopt;
  const auto own = owned_.find(node.name);
  return own != owned_.end() ? std::optional(own->second) : std::nullopt;
}

uint64_t Roster::ClientsWith(const fleet::RegisterRequest& node) const {
  if (Find(node.data_digest).has_value()) return clients_;
  const std::optional<HoldingId> replaced = Replaces(node);
  return clients_ + node.clients - (replaced.has_value() ? At(*replaced).clients : 0);
}

void Roster::Clear(HoldingId holding) {
  Holding& old = holdings_[holding.value];
  clients_ -= old.clients;
  by_data_.erase(old.data);
  for (const std::string& name : old.content.names) names_.erase(name);
  if (unnamed_ == holding) unnamed_.reset();
  owned_.erase(old.owner);
  old = {};
  tables_.clear();
  for (const Holding& other : holdings_) tables_.insert(other.table);
}

void Roster::ForgetNames(HoldingId holding) {
  Holding& of = holdings_[holding.value];
  if (!of.owner.empty()) of.features = of.classes = {};
}

HoldingId Roster::Add(const fleet::RegisterRequest& node, fleet::ClientTable table) {
  if (node.has_central_rows() && !has_central_rows()) {
    central_rows_ = node.central_test_rows;
    central_val_rows_ = node.central_val_rows;
    central_digest_ = node.central_test_digest;
    central_from_ = node.name;
  }
  if (const std::optional<HoldingId> known = Find(node.data_digest); known.has_value()) {
    const bool again = OwnOf(node).has_value();
    Holding& holding = holdings_[known->value];
    if (again || holding.features.IsZero()) holding.features = node.feature_names;
    if (again || holding.classes.IsZero()) holding.classes = node.class_names;
    return *known;
  }
  const std::optional<HoldingId> replaced = Replaces(node);
  const HoldingId id = replaced.value_or(HoldingId(holdings()));
  if (replaced.has_value()) {
    Clear(id);
  } else {
    holdings_.emplace_back();
  }
  by_data_[node.data_digest] = id;
  if (node.owner) owned_[node.name] = id;
  tables_.insert(node.table.digest);
  if (table.clients() > 0) {
    if (clients_ == 0) first_ = id;
    sequences_ = !table.tokens.empty();
    if (table.names.empty()) unnamed_ = id;
    for (const std::string& name : table.names) names_[name] = id;
  }
  const uint64_t clients = table.clients();
  clients_ += clients;
  holdings_[id.value] = {.data = node.data_digest,
                         .table = node.table.digest,
                         .owner = node.owner ? node.name : "",
                         .brought_by = node.name,
                         .features = node.feature_names,
                         .classes = node.class_names,
                         .clients = clients,
                         .content = std::move(table)};
  return id;
}

std::string Roster::Begin(const std::vector<std::string>& eligible, const NamedGroups& groups,
                          Numbering numbering) {
  begun_ = true;
  GroupMatches matches(groups);
  const auto note = [&](const std::string& name) {
    if (!groups.names().empty()) {
      const std::optional<uint32_t> group = matches.Add(name);
      groups_.push_back(group.has_value() ? *group + 1 : 0);
    }
    if (eligible.empty()) return;
    matches_.push_back(std::ranges::any_of(
        eligible, [&](const std::string& pattern) { return NameMatches(name, pattern); }));
  };
  names_ = {};
  owned_ = {};
  struct Named {
    std::string name;
    HoldingId holding;
    uint64_t place = 0;
  };
  if (unnamed_.has_value() && At(*unnamed_).clients == clients_) {  // it has all clients
    fleet::ClientTable& table = holdings_[unnamed_->value].content;
    rows_ = std::move(table.rows);
    tokens_ = std::move(table.tokens);
    test_rows_ = std::move(table.test_rows);
    validation_rows_ = std::move(table.validation_rows);
    for (uint64_t client = 0; client < clients_; ++client) note(absl::StrCat(client));
    table = {};
    return matches.Unmatched();
  }
  std::vector<Named> order;
  order.reserve(clients_);
  for (uint32_t h = 0; h < holdings(); ++h) {
    const fleet::ClientTable& table = holdings_[h].content;
    for (uint64_t place = 0; place < table.clients(); ++place)
      order.push_back({table.NameOf(place), HoldingId(h), place});
  }
  // A simulation's clients keep their numbers where names are asked for patterns: its results are
  // those of a run without them.
  const bool for_patterns =
      eligible.empty() ? !groups.names().empty() : numbering == Numbering::kByPlace;
  const bool in_place = for_patterns && At(first_).clients == clients_ && At(first_).owner.empty();
  if (!in_place) {
    std::ranges::sort(order,
                      [](const Named& a, const Named& b) { return NameBefore(a.name, b.name); });
  }
  const auto fill = [&](std::vector<uint32_t>& to,
                        std::vector<uint32_t> fleet::ClientTable::*column) {
    for (uint64_t number = 0; number < order.size(); ++number) {
      const std::vector<uint32_t>& from = At(order[number].holding).content.*column;
      if (from.empty()) continue;
      to.resize(order.size());
      to[number] = from[order[number].place];
    }
  };
  fill(test_rows_, &fleet::ClientTable::test_rows);
  fill(validation_rows_, &fleet::ClientTable::validation_rows);
  for (const Named& client : order) {
    const fleet::ClientTable& table = At(client.holding).content;
    rows_.push_back(table.rows[client.place]);
    if (!table.tokens.empty()) tokens_.push_back(table.tokens[client.place]);
    holding_.push_back(client.holding);
    place_.push_back(client.place);
    note(client.name);
  }
  for (Holding& holding : holdings_) holding.content = {};
  return matches.Unmatched();
}

Digest Roster::data_digest() const {
  std::vector<Digest> digests;
  for (const Holding& holding : holdings_) {
    if (holding.clients > 0) digests.push_back(holding.data);
  }
  if (digests.size() == 1) return digests[0];
  std::ranges::sort(digests, [](const Digest& a, const Digest& b) { return a.bytes < b.bytes; });
  Digester digester;
  digester.Add(absl::string_view("macaw holdings")).Add(uint64_t{digests.size()});
  for (const Digest& digest : digests) digester.Add(std::as_bytes(std::span(digest.bytes)));
  return digester.Finish();
}

}  // namespace macaw::server
