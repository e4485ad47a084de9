#include "proto/wire/convert.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/blob_digest.h"
#include "proto/fleet/client_table.h"
#include "proto/wire/limits.h"
#include "proto/wire/refusal.h"
#include "proto/wire/shared_memory.h"
#include "testing/random_message.h"

namespace macaw::wire {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::HasSubstr;
using testing::StartsWith;

TEST(Convert, EveryFieldOfEveryMessageSurvivesBothWays) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomMessage random(seed);
    ForEachConvertedMessage(random, [&](const auto& message, auto again) {
      const auto value = FromWire(message);
      ASSERT_TRUE(value.ok()) << value.status() << "\n" << message.DebugString();
      const auto back = again(*value);
      MessageDifferencer differencer;
      std::string difference;
      differencer.ReportDifferencesToString(&difference);
      EXPECT_TRUE(differencer.Compare(message, back))
          << message.GetTypeName() << ": " << difference;
    });
  }
}

TEST(Convert, KeepsTheKindOfEveryAlgorithmParameter) {
  RunPlan run;
  run.algorithm.name = "fedprox";
  run.algorithm.parameters = {{"flag", true},
                              {"count", int64_t{-3}},
                              {"mu", 0.1},
                              {"whole", 2.0},
                              {"no_limit", std::numeric_limits<double>::infinity()},
                              {"rule", std::string("median")},
                              {"empty", std::string()}};
  run.task = TaskKind::kRegression;
  run.train_clients = 12;
  run.dtype = DType::kF64;
  run.model.layers = {"conv 32 5 pad 2", "relu"};
  run.model.input_shape = {1, 28, 28};
  run.local.class_weights = {0.5, 1e-300};
  const auto back = FromWire(ToWire(run));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->algorithm.parameters, run.algorithm.parameters);
  EXPECT_EQ(back->task, run.task);
  EXPECT_EQ(back->train_clients, run.train_clients);
  EXPECT_EQ(back->dtype, run.dtype);
  EXPECT_EQ(back->model.layers, run.model.layers);
  EXPECT_EQ(back->model.input_shape, run.model.input_shape);
  EXPECT_EQ(back->local.class_weights, run.local.class_weights);
  EXPECT_EQ(back->local.shuffle, run.local.shuffle);
  EXPECT_EQ(back->contribution_bound, run.contribution_bound);
}

// Settings are checked before a run begins (KeyOfLongText), and then the wire takes them.
TEST(Convert, TakesTextsOfAPlanUpToTheLengthThatItsCheckAllows) {
  for (const size_t size : {kMostSettingBytes, kMostSettingBytes + 1}) {
    const std::string text(size, 'x');
    RunPlan parameter, key, list;
    parameter.algorithm = {.name = "mine", .parameters = {{"note", text}}};
    key.name = text;
    list.model.layers = {"linear 3", text};
    const std::pair<const RunPlan*, const char*> plans[] = {
        {&parameter, "algorithm.mine.note"}, {&key, "run.name"}, {&list, "model.layers"}};
    for (const auto& [plan, where] : plans) {
      const absl::Status status = FromWire(ToWire(*plan)).status();
      EXPECT_EQ(status.ok(), size == kMostSettingBytes) << status;
      EXPECT_EQ(KeyOfLongText(*plan), status.ok() ? "" : where);
      if (!status.ok()) {
        EXPECT_THAT(std::string(status.message()), HasSubstr(where));
      }
    }
  }
}

TEST(Convert, TakesEveryTableOfClientsThatAServerTakes) {
  for (const uint64_t clients : {uint64_t{0}, uint64_t{1}, uint64_t{3}}) {
    for (int columns = 0; columns < 16; ++columns) {
      fleet::ClientTable table{.rows = std::vector<uint32_t>(clients, 7)};
      if ((columns & 1) != 0) table.tokens = table.rows;
      if ((columns & 2) != 0) table.test_rows = table.rows;
      if ((columns & 4) != 0) table.validation_rows = table.rows;
      for (uint64_t k = 0; (columns & 8) != 0 && k < clients; ++k)
        table.names.emplace_back(fleet::kLongestClientName, static_cast<char>('a' + k));
      auto bytes = std::make_shared<AlignedBuffer>(table.Encode());
      ASSERT_TRUE(fleet::ClientTable::Decode(std::as_const(*bytes).bytes(), clients).ok());
      fleet::RegisterRequest request = *FromWire(RandomMessage(1).Make<v1::RegisterRequest>());
      request.clients = clients;
      request.table = {.digest = BlobDigest(std::as_const(*bytes).bytes()),
                       .size = bytes->size(),
                       .bytes = bytes};
      const auto back = FromWire(ToWire(request, InlineRule{.max_inline = 1000}));
      EXPECT_TRUE(back.ok()) << clients << " clients, columns " << columns << ": " << back.status();
    }
  }
}

// Each column of a message, one value short or one too long: refused by its name.
template <typename Columns, typename Refused>
void ExpectEqualColumns(const Refused& refused) {
  const auto* const type = Columns::descriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const auto* const column = type->field(i);
    Columns longer = RandomMessage(1).Make<Columns>();
    while (longer.client_size() < 2) longer = RandomMessage(longer.client(0)).Make<Columns>();
    Columns shorter = longer;
    shorter.GetReflection()->RemoveLast(&shorter, column);
    const std::string where = refused(shorter);
    // One client fewer leaves every other column too long; the first that is looked at says so.
    EXPECT_THAT(where, StartsWith(column->name() == "client"        ? "epoch: "
                                  : column->name() == "state_epoch" ? "state_"
                                                                    : column->name() + ": "));
    if (column->name() == "client") continue;
    shorter.GetReflection()->ClearField(&shorter, column);
    const bool may_be_absent = column->name() == "multiplicity" ||
                               column->name() == "state_seconds" || column->name() == "place" ||
                               column->name() == "bytes_up" || column->name() == "staleness";
    EXPECT_EQ(refused(shorter).empty(),
              may_be_absent || column->name() == "sums" || column->name() == "personal_sums")
        << column->name();
  }
}

TEST(Convert, ColumnsAreEquallyLong) {
  ExpectEqualColumns<v1::Assignments>([](const v1::Assignments& columns) {
    v1::LeaseReply reply;
    reply.set_next(v1::NEXT_WORK);
    *reply.mutable_training()->mutable_assignments() = columns;
    const absl::Status status = FromWire(reply).status();
    const std::string prefix = "training.assignments.";
    if (status.ok()) return std::string();
    EXPECT_THAT(std::string(status.message()), StartsWith(prefix));
    return std::string(status.message().substr(prefix.size()));
  });
  ExpectEqualColumns<v1::ClientRecords>([](const v1::ClientRecords& columns) {
    v1::Part part;
    *part.mutable_included() = columns;
    const absl::Status status = FromWire(part).status();
    const std::string prefix = "included.";
    if (status.ok()) return std::string();
    EXPECT_THAT(std::string(status.message()), StartsWith(prefix));
    return std::string(status.message().substr(prefix.size()));
  });
}

TEST(Convert, BlobsRideInsideOnlyWhenSmallAndWanted) {
  const fleet::Blob blob = fleet::RandomBlob(100, 1);
  EXPECT_TRUE(ToWire(blob, InlineRule{.max_inline = 100}).has_inline_());
  EXPECT_FALSE(ToWire(blob, InlineRule{.max_inline = 99}).has_inline_());
  EXPECT_FALSE(
      ToWire(blob, InlineRule{.max_inline = 100, .have = {&blob.digest, 1}}).has_inline_());
  const auto named = FromWire(ToWire(blob, InlineRule{}));
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->bytes, nullptr);
  EXPECT_EQ(named->digest, blob.digest);
  EXPECT_EQ(named->size, 100u);
}

TEST(Convert, TellsWhereABlobCanBeMappedWhenAllowed) {
  const fleet::Blob blob = fleet::Blob::Of(AlignedBuffer::Shareable(2 << 20));
  ASSERT_TRUE(PublishShared(blob).has_value());
  EXPECT_FALSE(ToWire(blob, InlineRule{}).has_shared());
  const v1::Blob small = ToWire(blob, InlineRule{.max_inline = 4 << 20, .share = true});
  EXPECT_TRUE(small.has_shared() && !small.has_inline_()) << "mapping is cheaper than sending";
  EXPECT_FALSE(ToWire(blob, InlineRule{.have = {&blob.digest, 1}, .share = true}).has_shared());
  const auto told = FromWire(ToWire(blob, InlineRule{.share = true}));
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(told->bytes, nullptr);
  EXPECT_EQ(told->place, PublishShared(blob));
}

TEST(Convert, SendsShortFormsInPlaceOfTheWholeBlob) {
  fleet::Blob blob = fleet::RandomBlob(100, 1);
  const fleet::Blob form = fleet::RandomBlob(20, 2);
  blob.compact.push_back({blob.digest, form.digest, form.size, form.bytes});
  const v1::Blob message = ToWire(blob, InlineRule{.max_inline = 1000});
  EXPECT_FALSE(message.has_inline_());
  const auto back = FromWire(message);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->digest, blob.digest);
  EXPECT_EQ(back->bytes, nullptr);
  ASSERT_EQ(back->compact.size(), 1u);
  EXPECT_EQ(back->compact[0].base, blob.digest);
  EXPECT_EQ(back->compact[0].digest, form.digest);
  ASSERT_NE(back->compact[0].bytes, nullptr);
  EXPECT_EQ(back->least_bytes(), 20u);
  // Whoever has the blob gets its name alone.
  const v1::Blob named = ToWire(blob, InlineRule{.max_inline = 1000, .have = {&blob.digest, 1}});
  EXPECT_EQ(named.compact_size(), 0);
}

TEST(Convert, SendsPartsInPlaceOfTheWholeBlob) {
  fleet::Blob whole = fleet::RandomBlob(100, 1);
  whole.bytes.reset();
  whole.parts = {fleet::RandomBlob(30, 2), fleet::RandomBlob(70, 3)};
  const fleet::Blob form = fleet::RandomBlob(20, 4);
  whole.parts[0].compact.push_back({{}, form.digest, form.size, form.bytes});
  const Digest base = whole.base().digest;
  const auto back = FromWire(ToWire(whole, InlineRule{.max_inline = 1000, .have = {&base, 1}}));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->digest, whole.digest);
  ASSERT_TRUE(back->has_parts());
  EXPECT_EQ(back->trained().digest, whole.trained().digest);
  ASSERT_EQ(back->trained().compact.size(), 1u);
  EXPECT_EQ(back->base().digest, base);
  EXPECT_EQ(back->base().size, 70u);
  EXPECT_EQ(back->base().bytes, nullptr) << "the receiver has it";
  EXPECT_EQ(back->least_bytes(), 20u);
  const v1::Blob named = ToWire(whole, InlineRule{.have = {&whole.digest, 1}});
  EXPECT_EQ(named.parts_size(), 0);
}

TEST(Convert, AnEmptyBlobIsNotAMissingOne) {
  const auto back = FromWire(ToWire(fleet::RandomBlob(0, 1), InlineRule{}));
  ASSERT_TRUE(back.ok());
  ASSERT_NE(back->bytes, nullptr);
  EXPECT_EQ(back->bytes->size(), 0u);
}

// One message, one thing wrong with it, the field that the refusal must name.
template <typename Message>
void ExpectRefused(Message message, const std::string& where,
                   v1::Refusal::Reason reason = v1::Refusal::REASON_MALFORMED) {
  const absl::Status status = FromWire(message).status();
  EXPECT_EQ(ReasonOf(status), reason) << status;
  EXPECT_THAT(std::string(status.message()), StartsWith(where + ": "));
}

template <typename Message, typename F>
Message But(F change) {
  Message message = RandomMessage(1).Make<Message>();
  change(message);
  return message;
}

TEST(Convert, RefusesWhatNoSenderWrites) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  using Commit = v1::CommitRequest;
  const auto part = [](auto f) { return But<Commit>([&](Commit& m) { f(*m.mutable_part()); }); };
  ExpectRefused(part([](v1::Part& p) { p.set_phase(256); }), "part.phase");
  ExpectRefused(part([](v1::Part& p) { p.set_broadcast("short"); }), "part.broadcast");
  ExpectRefused(part([&](v1::Part& p) { p.mutable_included()->set_weight(0, nan); }),
                "part.included.weight[0]");
  ExpectRefused(part([&](v1::Part& p) { p.mutable_included()->set_weight(0, -1); }),
                "part.included.weight[0]");
  ExpectRefused(part([&](v1::Part& p) { p.mutable_included()->set_multiplicity(0, 0); }),
                "part.included.multiplicity[0]");
  ExpectRefused(part([&](v1::Part& p) { p.mutable_included()->set_train_seconds(0, inf); }),
                "part.included.train_seconds[0]");
  ExpectRefused(
      part([](v1::Part& p) { p.mutable_left_out(0)->set_reason(v1::LEFT_OUT_REASON_UNSPECIFIED); }),
      "part.left_out[0].reason");
  ExpectRefused(part([](v1::Part& p) {
                  p.mutable_left_out(0)->set_reason(static_cast<v1::LeftOutReason>(77));
                }),
                "part.left_out[0].reason");
  ExpectRefused(
      part([](v1::Part& p) { p.mutable_sums()->set_inline_("x"), p.mutable_sums()->set_size(2); }),
      "part.sums.inline");
  ExpectRefused(
      part([](v1::Part& p) { p.mutable_sums()->set_inline_("xy"), p.mutable_sums()->set_size(2); }),
      "part.sums.inline", v1::Refusal::REASON_DIGEST_MISMATCH);
  ExpectRefused(part([](v1::Part& p) { p.mutable_sums()->clear_digest(); }), "part.sums.digest");
  ExpectRefused(But<Commit>([](Commit& m) { m.mutable_part_blob(); }), "part_blob");

  using Lease = v1::LeaseRequest;
  ExpectRefused(But<Lease>([](Lease& m) { m.set_wait_ns(-1); }), "wait_ns");
  ExpectRefused(But<Lease>([](Lease& m) { m.set_wait_ns(std::numeric_limits<int64_t>::max()); }),
                "wait_ns");
  ExpectRefused(But<Lease>([](Lease& m) { m.add_have("1"); }), "have");
  ExpectRefused(But<v1::LeaseReply>([](auto& m) { m.set_next(v1::NEXT_UNSPECIFIED); }), "next");
  ExpectRefused(But<v1::LeaseReply>([](auto& m) { m.Clear(), m.set_next(v1::NEXT_WORK); }), "next");
  ExpectRefused(But<v1::LeaseReply>([&](auto& m) { m.mutable_training()->set_total_weight(inf); }),
                "training.total_weight");

  using Register = v1::RegisterRequest;
  ExpectRefused(But<Register>([](Register& m) { m.clear_name(); }), "name");
  ExpectRefused(But<Register>([](Register& m) { m.set_slots(0); }), "slots");
  ExpectRefused(But<Register>([](Register& m) { m.set_clients(m.clients() + 1000); }), "table");
  ExpectRefused(But<Register>([](Register& m) { m.set_clients(~uint64_t{0}); }), "clients");
  ExpectRefused(But<Register>([](Register& m) { m.add_input_shape(0); }), "input_shape");
  const auto with = [](auto& m, const std::string& key) -> v1::Value& {
    v1::Setting& setting = *m.add_settings();
    setting.set_key(key);
    return *setting.mutable_value();
  };
  const auto plan = [&](const std::string& key, const auto& set) {
    v1::RunPlan m;
    set(with(m, key));
    return m;
  };
  ExpectRefused(plan("local.lr", [&](v1::Value& value) { value.set_real(nan); }),
                "settings[0].value.real");
  ExpectRefused(plan("local.lr", [](v1::Value& value) { value.set_real(-1); }), "settings");
  ExpectRefused(plan("run.dtype", [](v1::Value& value) { value.set_text("float8"); }), "settings");
  ExpectRefused(plan("local.lr", [](v1::Value&) {}), "settings[0].value.value");
  const std::string longest(kMaxNameBytes, 'x');
  const auto text = [&](std::string words) {
    return plan("run.name", [&](v1::Value& value) { value.set_text(words); });
  };
  EXPECT_TRUE(FromWire(text(longest)).ok());
  ExpectRefused(text(longest + "x"), "settings[0].value.text");
  EXPECT_THAT(std::string(FromWire(text(longest + "x")).status().message()),
              HasSubstr("longer than 4096 bytes (run.name)"));
  ExpectRefused(plan("model.layers",
                     [](v1::Value& value) { value.mutable_list()->add_values()->mutable_list(); }),
                "settings[0].value.values[0].value");
  ExpectRefused(But<v1::EvaluationTask>([](auto& m) { m.set_begin(m.end() + 1); }), "begin");
  ExpectRefused(But<v1::BeginUploadRequest>([](auto& m) { m.set_size(0); }), "size");
  const auto forms = [](auto f) {
    v1::Blob blob = ToWire(fleet::RandomBlob(10, 1), InlineRule{});
    f(blob);
    return blob;
  };
  ExpectRefused(forms([](v1::Blob& m) { m.add_compact(); }), "compact");
  ExpectRefused(forms([](v1::Blob& m) {
                  v1::Blob& form = *m.add_compact()->mutable_blob();
                  form = ToWire(fleet::RandomBlob(5, 2), InlineRule{});
                  *form.add_compact()->mutable_blob() = form;
                }),
                "compact");
  ExpectRefused(forms([](v1::Blob& m) {
                  v1::Blob& form = *m.add_compact()->mutable_blob();
                  form = ToWire(fleet::RandomBlob(5, 2), InlineRule{});
                  for (int i = 0; i < 2; ++i) *form.add_parts() = form;
                }),
                "compact");
  ExpectRefused(forms([](v1::Blob& m) {
                  m.add_compact()->set_base("short");
                  *m.mutable_compact(0)->mutable_blob() =
                      ToWire(fleet::RandomBlob(5, 2), InlineRule{});
                }),
                "compact.base");
  ExpectRefused(forms([](v1::Blob& m) {
                  for (int i = 0; i < 9; ++i)
                    *m.add_compact()->mutable_blob() =
                        ToWire(fleet::RandomBlob(5, 2), InlineRule{});
                }),
                "compact");
  const v1::Blob one = ToWire(fleet::RandomBlob(5, 2), InlineRule{});
  ExpectRefused(forms([&](v1::Blob& m) { *m.add_parts() = one; }), "parts");
  ExpectRefused(forms([&](v1::Blob& m) {
                  for (int i = 0; i < 3; ++i) *m.add_parts() = one;
                }),
                "parts");
  ExpectRefused(forms([&](v1::Blob& m) {
                  for (int i = 0; i < 2; ++i) *m.add_parts() = one;
                  for (int i = 0; i < 2; ++i) *m.mutable_parts(1)->add_parts() = one;
                }),
                "parts");
  ExpectRefused(forms([&](v1::Blob& m) {
                  *m.add_parts() = one;
                  m.add_parts();
                }),
                "parts");
  ExpectRefused(But<v1::BeginUploadRequest>([](auto& m) { m.clear_digest(); }), "digest");
  ExpectRefused(But<v1::BeginUploadRequest>([](auto& m) { m.clear_purpose(); }), "purpose");
}

TEST(Refusals, KeepTheirReasonAcrossTheWire) {
  const absl::Status status =
      Refuse(v1::Refusal::REASON_BLOB_MISSING, "not here", "", DigestOf("x"));
  const absl::Status back = FromGrpc(ToGrpc(status));
  EXPECT_EQ(back, status);
  EXPECT_EQ(ReasonOf(back), v1::Refusal::REASON_BLOB_MISSING);
  EXPECT_EQ(ReasonOf(absl::InternalError("x")), v1::Refusal::REASON_UNSPECIFIED);
}

TEST(Refusals, FreeTextIsMadeFitForAString) {
  const fleet::CommitReply reply{
      .verdict = fleet::Verdict::kRefused,
      .reason = std::string("bad \xff\xfe\0 bytes", 13) + std::string(10'000, 'x')};
  const v1::CommitReply message = ToWire(reply, InlineRule{});
  EXPECT_THAT(message.reason(), StartsWith("bad ???"));
  EXPECT_EQ(ShortCleanText("\u65e5\u672c \u2026\n"), "\u65e5\u672c \u2026\n")
      << "names are told as they are";
  EXPECT_EQ(ShortCleanText("a\u009b1m\x1b[\xe2\x80"), "a??1m?[??") << "and drive no terminal";
  EXPECT_EQ(ShortCleanText(std::string(kMaxTextBytes - 1, 'x') + "\u65e5"),
            std::string(kMaxTextBytes - 1, 'x'))
      << "no half character";
  EXPECT_LE(message.reason().size(), kMaxTextBytes);
  EXPECT_TRUE(FromWire(message).ok());
}

}  // namespace
}  // namespace macaw::wire
