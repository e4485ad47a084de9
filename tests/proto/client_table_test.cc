#include "proto/fleet/client_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "core/random.h"

namespace macaw::fleet {
namespace {

absl::StatusOr<ClientTable> ThereAndBack(const ClientTable& table) {
  const AlignedBuffer bytes = table.Encode();
  return ClientTable::Decode(std::as_const(bytes).bytes(), table.clients());
}

TEST(ClientTable, ComesBackAsItWas) {
  for (const ClientTable& table :
       {ClientTable{}, ClientTable{.rows = {3, 0, 7}},
        ClientTable{.rows = {3, 0}, .tokens = {80, 0}},
        ClientTable{.rows = {3, 0}, .tokens = {80, 0}, .names = {"anna", "bert ü"}},
        ClientTable{.rows = {3, 0}, .test_rows = {1, 2}},
        ClientTable{.rows = {3, 0}, .names = {"a", "b"}, .validation_rows = {4, 0}},
        ClientTable{.rows = {1, 2},
        .tokens = {9, 9},
        .names = {"a", "b"},
        .test_rows = {0, 5},
        .validation_rows = {6, 0}},
        ClientTable{.rows = {1}, .names = {"x"}}}) {
    const auto back = ThereAndBack(table);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, table);
  }
  EXPECT_EQ((ClientTable{.rows = {1, 2}}.NameOf(1)), "1");
}

TEST(ClientTable, RefusesNamesThatAreNone) {
  const auto refusal = [](std::vector<std::string> names) {
    return std::string(
        ThereAndBack({.rows = std::vector<uint32_t>(names.size(), 1), .names = names})
            .status()
            .message());
  };
  EXPECT_THAT(refusal({"a", ""}), testing::HasSubstr("client 1"));
  EXPECT_THAT(refusal({std::string(129, 'x')}), testing::HasSubstr("128 bytes"));
  EXPECT_THAT(refusal({"a\tb"}), testing::HasSubstr("control characters"));
  EXPECT_THAT(refusal({"a", "b", "a"}), testing::HasSubstr("named \"a\""));
  EXPECT_NE(refusal({"a\nb", "c"}), "");
}

// Before they are lines of a table, which then has more names than clients.
TEST(ClientTable, NamesWithLineBreaksAreKnownBeforeTheyAreWritten) {
  EXPECT_THAT(std::string(CheckNames({"c", "a\nb"}).message()),
              testing::AllOf(testing::HasSubstr("client 1, \"a\\nb\", has a control character"),
                             testing::HasSubstr("line break")));
  EXPECT_THAT(std::string(CheckNames({std::string(129, 'x')}).message()),
              testing::HasSubstr("xxx…\", has 129 bytes"));
  EXPECT_TRUE(CheckNames({"a", std::string(128, 'x'), "ä b"}).ok());
}

// The fuzzer found that a column of tokens was accepted where there are no clients. Equal tables
// had different bytes.
TEST(ClientTable, OfNoClientsHasNoColumns) {
  for (const std::byte flags :
       {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{8}}) {
    const std::vector<std::byte> bytes = {flags, {}, {}, {}, {}, {}, {}, {}};
    EXPECT_TRUE(absl::IsInvalidArgument(ClientTable::Decode(bytes, 0).status()));
  }
}

TEST(ClientTable, AnyOtherBytesAreRefusedOrATableOfThatSize) {
  RandomStream stream({.seed = 1});
  const AlignedBuffer honest = ClientTable{
      .rows = {3, 0, 9},
      .tokens = {80, 0, 7},
      .names = {"a", "b", "c"},
      .test_rows = {1, 0, 2}}.Encode();
  for (int trial = 0; trial < 5000; ++trial) {
    std::vector<std::byte> bytes(std::as_const(honest).bytes().begin(),
                                 std::as_const(honest).bytes().end());
    bytes.resize(stream.Below(bytes.size() + 20));
    for (uint64_t flips = stream.Below(4); flips > 0 && !bytes.empty(); --flips)
      bytes[stream.Below(bytes.size())] = static_cast<std::byte>(stream.NextU32());
    const uint64_t clients = stream.Below(5) == 0 ? uint64_t{1} << 62 : 3;
    const auto table = ClientTable::Decode(bytes, clients);
    if (!table.ok()) continue;
    EXPECT_EQ(table->rows.size(), clients);
    EXPECT_TRUE(table->tokens.empty() || table->tokens.size() == clients);
    EXPECT_TRUE(table->names.empty() || table->names.size() == clients);
    EXPECT_TRUE(table->test_rows.empty() || table->test_rows.size() == clients);
    EXPECT_TRUE(table->validation_rows.empty() || table->validation_rows.size() == clients);
  }
}

}  // namespace
}  // namespace macaw::fleet
