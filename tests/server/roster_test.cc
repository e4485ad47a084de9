#include "server/engine/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/random.h"
#include "server/engine/totals.h"

namespace macaw::server {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Node {
  fleet::RegisterRequest request;
  fleet::ClientTable table;
};

// A node that holds the clients with these names, with `rows` rows each.
Node Holder(const std::string& name, std::vector<std::string> clients, uint32_t rows = 5) {
  Node node;
  node.table.rows.assign(clients.size(), rows);
  node.table.names = std::move(clients);
  node.request = {.name = name,
                  .data_digest = DigestOf("rows of " + name),
                  .clients = node.table.clients(),
                  .table = fleet::Blob::Of(node.table.Encode())};
  return node;
}

Node Owner(const std::string& name, std::vector<std::string> clients, uint32_t rows = 5) {
  Node node = Holder(name, std::move(clients), rows);
  node.request.owner = true;
  return node;
}

// A node that has the clients 0 … n−1 of one population.
Node Everybody(const std::string& name, std::vector<uint32_t> rows) {
  Node node;
  node.table.rows = std::move(rows);
  node.request = {.name = name,
                  .data_digest = DigestOf("the population"),
                  .clients = node.table.clients(),
                  .table = fleet::Blob::Of(node.table.Encode())};
  return node;
}

HoldingId Join(Roster& roster, const Node& node) {
  EXPECT_TRUE(roster.Check(node.request, node.table).ok())
      << roster.Check(node.request, node.table);
  return roster.Add(node.request, node.table);
}

std::string Refusal(const Roster& roster, const Node& node) {
  return std::string(roster.Check(node.request, node.table).message());
}

TEST(Roster, NumbersAWholePopulationByPlace) {
  Roster roster;
  const HoldingId first = Join(roster, Everybody("a", {3, 1, 4}));
  EXPECT_EQ(Join(roster, Everybody("b", {3, 1, 4})), first);
  roster.Begin();
  EXPECT_EQ(roster.clients(), 3u);
  EXPECT_THAT(roster.rows(), ElementsAre(3, 1, 4));
  EXPECT_EQ(roster.HoldingOf(ClientId(2)), first);
  EXPECT_EQ(roster.PlaceOf(ClientId(2)), 2u);
  EXPECT_EQ(roster.data_digest(), DigestOf("the population"));
}

// The division among nodes and the order of their registration do not change the numbers.
TEST(Roster, NumbersClientsByTheirNamesWhoeverBringsThemAndWhenever) {
  RandomStream stream({.seed = 4});
  std::vector<uint32_t> rows;
  for (uint32_t i = 0; i < 120; ++i) rows.push_back(1 + i * 7 % 13);
  Digest digest;
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<Node> nodes;
    for (uint32_t i = 0; i < 20; ++i) {
      nodes.push_back(Owner(absl::StrCat("o", i), {absl::StrCat(i)}, rows[i]));
      if (i % 2 == 0) nodes.back().table.test_rows = {i + 1};
    }
    Node rest = Holder("rest", {});
    for (uint32_t i = 20; i < 120; ++i) {
      rest.table.names.push_back(absl::StrCat(i));
      rest.table.rows.push_back(rows[i]);
    }
    rest.request.clients = 100;
    rest.request.table = fleet::Blob::Of(rest.table.Encode());
    nodes.push_back(rest);
    for (size_t i = nodes.size(); i > 1; --i) std::swap(nodes[i - 1], nodes[stream.Below(i)]);
    Roster roster;
    for (const Node& node : nodes) Join(roster, node);
    roster.Begin();
    EXPECT_EQ(roster.rows(), rows);
    for (uint64_t client = 0; client < 120; ++client) {
      const std::string& owner = roster.owner_of(roster.HoldingOf(ClientId(client)));
      EXPECT_EQ(owner, client < 20 ? absl::StrCat("o", client) : "");
      EXPECT_EQ(roster.PlaceOf(ClientId(client)), client < 20 ? 0 : client - 20);
      EXPECT_EQ(roster.TestRowsOf(ClientId(client)),
                client < 20 && client % 2 == 0 ? client + 1 : 0);
      EXPECT_EQ(roster.ValidationRowsOf(ClientId(client)), 0u);
    }
    if (trial == 0) digest = roster.data_digest();
    EXPECT_EQ(roster.data_digest(), digest);
  }
}

TEST(Roster, NumbersInNamesCountAsNumbers) {
  std::vector<std::string> names = {"10", "9", "node-12", "node-2", "node-02", "b", "a", ""};
  std::ranges::sort(names, NameBefore);
  EXPECT_THAT(names, ElementsAre("", "9", "10", "a", "b", "node-02", "node-2", "node-12"));
}

TEST(Roster, AClientIsHeldOnce) {
  Roster roster;
  Join(roster, Owner("anna", {"x", "y"}));
  EXPECT_THAT(
      Refusal(roster, Owner("bert", {"z", "y"})),
      testing::AllOf(HasSubstr("a client named \"y\", and so does worker"), HasSubstr("\"anna\"")));
  Roster whole;
  Join(whole, Everybody("w", {1, 2, 3}));
  EXPECT_THAT(Refusal(whole, Owner("anna", {"2"})), HasSubstr("a client named \"2\""));
  EXPECT_EQ(Refusal(whole, Owner("anna", {"3"})), "");
  EXPECT_EQ(Refusal(whole, Owner("anna", {"02"})), "");
  Node other = Everybody("v", {1, 2});
  other.request.data_digest = DigestOf("another population");
  EXPECT_THAT(Refusal(whole, other), HasSubstr("data differs from that of worker \"w\""));
}

// Its rows are those that it has when the run begins.
TEST(Roster, AnOwnerMayChangeItsRowsUntilTheRunBegins) {
  Roster roster;
  const HoldingId hers = Join(roster, Owner("anna", {"x", "y"}));
  Join(roster, Owner("bert", {"z"}));
  const Node first = Owner("anna", {"x", "y"});
  Node changed = Owner("anna", {"y", "w", "v"}, 7);
  changed.request.data_digest = DigestOf("more rows of anna");
  EXPECT_EQ(roster.ClientsWith(changed.request), 4u);
  EXPECT_EQ(Join(roster, changed), hers);
  EXPECT_EQ(roster.clients(), 4u);
  EXPECT_EQ(roster.holdings(), 2u);
  EXPECT_FALSE(roster.Find(first.request.data_digest).has_value());
  EXPECT_FALSE(roster.HasTable(first.request.table.digest));
  EXPECT_TRUE(roster.HasTable(changed.request.table.digest));
  EXPECT_EQ(Refusal(roster, Owner("carl", {"x"})), "") << "nobody has it now";
  Node taking = Owner("anna", {"y", "z"});
  taking.request.data_digest = DigestOf("a client of another");
  EXPECT_THAT(Refusal(roster, taking), HasSubstr("a client named \"z\", and so does worker"));
  Node thief = Owner("carl", {"y"});
  EXPECT_THAT(Refusal(roster, thief), HasSubstr("\"anna\""));
  EXPECT_EQ(Join(roster, first), hers) << "and back";
  EXPECT_EQ(Join(roster, changed), hers);
  roster.Begin();
  EXPECT_THAT(roster.rows(), ElementsAre(7, 7, 7, 5));  // v, w, y, z
  EXPECT_EQ(roster.HoldingOf(ClientId(2)), hers);
  EXPECT_THAT(Refusal(roster, first), HasSubstr("not those with which the run began"));
  EXPECT_THAT(Refusal(roster, Owner("carl", {"x"})), HasSubstr("begun without it"));
}

// A node has one holding. What it had before would be nobody's: no other node may bring it.
TEST(Roster, AnOwnerWithOtherClientsLeavesNoneBehind) {
  Roster roster;
  const HoldingId hers = Join(roster, Owner("anna", {"x", "y"}));
  Join(roster, Owner("bert", {"z"}));
  Node other = Owner("anna", {"v"});
  other.request.data_digest = DigestOf("other clients of anna");
  EXPECT_EQ(roster.ClientsWith(other.request), 2u);
  EXPECT_EQ(Join(roster, other), hers);
  EXPECT_EQ(roster.clients(), 2u);
  EXPECT_EQ(roster.holdings(), 2u);
  EXPECT_EQ(Refusal(roster, Owner("carl", {"x"})), "") << "nobody has it now";
  // Nodes that share rows own none, and one of them replaces nothing.
  Join(roster, Holder("dora", {"s"}));
  EXPECT_FALSE(roster.Replaces(Holder("dora", {"t"}).request).has_value());
  EXPECT_FALSE(roster.Replaces(Holder("anna", {"t"}).request).has_value());
  // Numbers for names are a name like others.
  Roster numbers;
  Node unnamed = Owner("anna", {"a"});
  unnamed.table.names.clear();
  unnamed.request.data_digest = DigestOf("without names");
  const HoldingId first = Join(numbers, unnamed);
  EXPECT_EQ(Join(numbers, Owner("anna", {"a"})), first);
  EXPECT_EQ(Refusal(numbers, Owner("bert", {"0"})), "");
  numbers.Begin();
  EXPECT_EQ(numbers.clients(), 1u);
}

TEST(Roster, OnlyTheOwnerComesBackWithItsClients) {
  Roster roster;
  const Node anna = Owner("anna", {"x"});
  const HoldingId hers = Join(roster, anna);
  Node thief = anna;
  thief.request.name = "thief";
  EXPECT_THAT(Refusal(roster, thief), HasSubstr("owned by worker \"anna\""));
  thief.request.owner = false;
  EXPECT_THAT(Refusal(roster, thief), HasSubstr("owned by worker \"anna\""));
  roster.Begin();
  EXPECT_EQ(Join(roster, anna), hers);
}

TEST(Roster, EqualDataIsDescribedEqually) {
  Roster roster;
  Join(roster, Everybody("a", {3, 1, 4}));
  EXPECT_THAT(Refusal(roster, Everybody("b", {3, 1, 5})), HasSubstr("other things of its clients"));
}

TEST(Roster, OnceBegunOnlyKnownClientsComeBack) {
  Roster roster;
  Join(roster, Holder("a", {"x"}));
  roster.Begin();
  EXPECT_EQ(Refusal(roster, Holder("a", {"x"})), "");
  EXPECT_THAT(Refusal(roster, Holder("b", {"y"})), HasSubstr("begun without it"));
}

TEST(Roster, ColumnsAndClassesMeanTheSameOnEveryNode) {
  Roster roster;
  Join(roster, Owner("old", {"old"}));  // says nothing of names
  Node first = Owner("amara", {"amara"});
  first.request.feature_names = DigestOf("age, weight");
  first.request.class_names = DigestOf("no, yes");
  Join(roster, first);
  Node swapped = Owner("bella", {"bella"});
  swapped.request.feature_names = DigestOf("weight, age");
  EXPECT_THAT(Refusal(roster, swapped),
              AllOf(HasSubstr("its columns of features have other names, or another order"),
                    HasSubstr("worker \"amara\"")));
  swapped.request.feature_names = first.request.feature_names;
  swapped.request.class_names = DigestOf("yes, no");
  EXPECT_THAT(Refusal(roster, swapped), HasSubstr("data.class_names is the same list"));
  swapped.request.class_names = {};
  Join(roster, swapped);
}

// It was refused for names that it alone had said, until the server was started again.
TEST(Roster, AnOwnerMayCorrectItsNamesUntilTheRunBegins) {
  for (const bool same_data : {false, true}) {
    Roster roster;
    Node wrong = Owner("amara", {"amara"});
    wrong.request.feature_names = DigestOf("weight, age");
    wrong.request.class_names = DigestOf("yes, no");
    const HoldingId hers = Join(roster, wrong);
    Node other = Owner("bella", {"bella"});
    other.request.feature_names = DigestOf("age, weight");
    other.request.class_names = DigestOf("no, yes");
    EXPECT_THAT(Refusal(roster, other), HasSubstr("worker \"amara\""));
    Node mended = wrong;
    if (!same_data) mended.request.data_digest = DigestOf("written again");
    mended.request.feature_names = other.request.feature_names;
    mended.request.class_names = other.request.class_names;
    EXPECT_EQ(Join(roster, mended), hers);
    Join(roster, other);
    EXPECT_THAT(Refusal(roster, wrong), HasSubstr("worker \"bella\""));
    roster.Begin();
    mended.request.feature_names = DigestOf("weight, age");
    EXPECT_THAT(Refusal(roster, mended), HasSubstr("columns of features"));
  }
}

TEST(Roster, TheNamesOfAnOwnerThatHasGoneKeepNobodyOut) {
  Roster roster;
  Node odd = Owner("odd", {"odd"});
  odd.request.feature_names = DigestOf("weight, age");
  const HoldingId its = Join(roster, odd);
  Node good = Owner("good", {"good"});
  good.request.feature_names = DigestOf("age, weight");
  EXPECT_THAT(Refusal(roster, good), HasSubstr("columns of features"));
  roster.ForgetNames(its);
  Join(roster, good);
  EXPECT_THAT(Refusal(roster, odd), HasSubstr("worker \"good\""));
}

TEST(Roster, ANodeWithNothingIsRefusedAndOneWithTheTestSetAloneIsNot) {
  Roster roster;
  Node node = Holder("w", {});
  EXPECT_THAT(Refusal(roster, node), HasSubstr("neither clients nor"));
  node.request.central_test_rows = 20;
  node.request.central_test_digest = DigestOf("test");
  Join(roster, node);
  Join(roster, Owner("anna", {"x"}));
  Node other = Owner("bert", {"y"});
  other.request.central_test_rows = 20;
  other.request.central_test_digest = DigestOf("another test set");
  EXPECT_THAT(Refusal(roster, other), HasSubstr("test set differs from that of worker \"w\""));
  roster.Begin();
  EXPECT_EQ(roster.central_test_rows(), 20u);
  EXPECT_EQ(roster.clients(), 1u);
}

TEST(Roster, GroupsClientsByTheirNames) {
  const NamedGroups groups = *NamedGroups::Parse({"a=x*", "b=y*"});
  // The clients of a simulation keep their places, which decide their streams.
  Roster roster;
  Join(roster, Holder("w", {"y2", "x9", "z", "x1"}));
  roster.Begin({}, groups);
  EXPECT_EQ(roster.GroupOf(ClientId(0)), 1u);
  EXPECT_EQ(roster.GroupOf(ClientId(1)), 0u);
  EXPECT_FALSE(roster.GroupOf(ClientId(2)).has_value());
  EXPECT_EQ(roster.GroupOf(ClientId(3)), 0u);
  EXPECT_EQ(roster.PlaceOf(ClientId(0)), 0u);
  // Those of owners are in the order of their names.
  Roster fleet;
  Join(fleet, Owner("one", {"y2"}));
  Join(fleet, Owner("two", {"x1"}));
  fleet.Begin({}, groups);
  EXPECT_EQ(fleet.GroupOf(ClientId(0)), 0u);
  EXPECT_EQ(fleet.GroupOf(ClientId(1)), 1u);
  // Without names they are their numbers.
  Roster numbered;
  Join(numbered, Everybody("w", {1, 1, 1}));
  EXPECT_EQ(numbered.Begin({}, *NamedGroups::Parse({"first=0", "rest=*"})), "");
  EXPECT_EQ(numbered.GroupOf(ClientId(0)), 0u);
  EXPECT_EQ(numbered.GroupOf(ClientId(2)), 1u);
  numbered = Roster();
  numbered.Begin();
  EXPECT_FALSE(numbered.GroupOf(ClientId(0)).has_value());
}

TEST(Roster, PatternsLeaveTheNumbersOfASimulationAlone) {
  const auto places = [](const std::vector<Node>& nodes, const std::vector<std::string>& eligible,
                         const NamedGroups& groups, Numbering numbering) {
    Roster roster;
    for (const Node& node : nodes) Join(roster, node);
    roster.Begin(eligible, groups, numbering);
    std::vector<std::string> all;
    for (uint64_t c = 0; c < roster.clients(); ++c) {
      const ClientId client(c);
      all.push_back(absl::StrCat(roster.HoldingOf(client).value, ".", roster.PlaceOf(client),
                                 roster.MayBeDrawn(client) ? "" : " no"));
    }
    return all;
  };
  const std::vector<Node> one = {Holder("w", {"zoe", "ann", "yan"})};
  const NamedGroups groups = *NamedGroups::Parse({"a=z*", "b=*"});
  for (const NamedGroups& asked : {NamedGroups(), groups}) {
    EXPECT_THAT(places(one, {"*"}, asked, Numbering::kByPlace), ElementsAre("0.0", "0.1", "0.2"));
    EXPECT_THAT(places(one, {"z*", "y*"}, asked, Numbering::kByPlace),
                ElementsAre("0.0", "0.1 no", "0.2"));
    // Of a simulation of 0.1.0, and of ordinary workers of a fleet.
    EXPECT_THAT(places(one, {"*"}, asked, Numbering::kByName), ElementsAre("0.1", "0.2", "0.0"));
  }
  // Owners and parts have no common order.
  EXPECT_THAT(places({Owner("w", {"zoe", "ann"})}, {"*"}, {}, Numbering::kByPlace),
              ElementsAre("0.1", "0.0"));
  EXPECT_THAT(places({Holder("v", {"zoe"}), Holder("w", {"ann"})}, {"*"}, {}, Numbering::kByPlace),
              ElementsAre("1.0", "0.0"));
}

TEST(Roster, NamesGroupsThatNobodyTests) {
  const NamedGroups groups = *NamedGroups::Parse({"a=x*", "b=y*", "c=z*", "d=*"});
  Roster roster;
  Node node = Holder("w", {"x1", "y1", "x2"});
  node.table.test_rows = {0, 0, 3};
  node.request.table = fleet::Blob::Of(node.table.Encode());
  Join(roster, node);
  EXPECT_THAT(roster.Begin({}, groups), HasSubstr("2 of 4 patterns (\"c=z*\", \"d=*\")"));
  EXPECT_THAT(EmptyGroups(groups, roster), testing::ElementsAre("b", "c", "d"));
}

}  // namespace
}  // namespace macaw::server
