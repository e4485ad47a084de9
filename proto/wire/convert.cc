#include "proto/wire/convert.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

#include "core/status.h"
#include "proto/wire/convert_pieces.h"

// Fill and Take of every message that has a list of fields. The lists say what is converted, this
// file says how each type of field is.
namespace macaw::wire {

static_assert(v1::NEXT_REGISTER == static_cast<int>(LastOf(fleet::Next())) + 1);
static_assert(v1::EVALUATION_KIND_CENTRAL_BACKDOOR ==
              static_cast<int>(LastOf(fleet::EvaluationKind())) + 1);
static_assert(v1::LEFT_OUT_REASON_DECLINED == static_cast<int>(LastOf(fleet::LeftOutReason())) + 1);
static_assert(v1::VERDICT_REGISTER == static_cast<int>(LastOf(fleet::Verdict())) + 1);
static_assert(v1::BeginUploadRequest::PURPOSE_RECORDS ==
              static_cast<int>(LastOf(fleet::BlobPurpose())) + 1);
static_assert(v1::UPLOAD_VERDICT_BUSY == static_cast<int>(LastOf(fleet::UploadVerdict())) + 1);

namespace {

constexpr fleet::Doing<fleet::Do::kGet> kGet;
constexpr fleet::Doing<fleet::Do::kHas> kHas;
constexpr fleet::Doing<fleet::Do::kSet> kSet;
constexpr fleet::Doing<fleet::Do::kMutable> kMutable;
constexpr fleet::Doing<fleet::Do::kAdd> kAdd;

template <typename T>
concept Id = requires(T id) {
  typename T::rep;
  id.value;
};
template <typename T>
concept Scalar = std::is_arithmetic_v<T> || std::is_enum_v<T> || Id<T> ||
    std::is_same_v<T, Duration> || std::is_same_v<T, Digest> || std::is_same_v<T, std::string>;
template <typename T>
constexpr bool kIsList = false;
template <typename T>
constexpr bool kIsList<std::vector<T>> = true;
template <typename T>
constexpr bool kIsOptional = false;
template <typename T>
constexpr bool kIsOptional<std::optional<T>> = true;

// ---- one value

// The value as the field's setter takes it.
template <typename Wire, typename Rule, typename T>
auto ToSend(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<Wire>(static_cast<int>(value) + 1);
  } else if constexpr (Id<T>) {
    return static_cast<Wire>(value.value);
  } else if constexpr (std::is_same_v<T, Duration>) {
    return std::max<int64_t>(0, value.count());
  } else if constexpr (std::is_same_v<T, Digest>) {
    return ToWire(value);
  } else if constexpr (std::is_same_v<Rule, fleet::FreeText>) {
    return ShortCleanText(value);
  } else {
    return value;
  }
}

template <typename Rule, typename T>
bool Obeys(const Rule& rule, const T& value) {
  if constexpr (requires { rule.least; }) return value >= rule.least && value <= rule.most;
  if constexpr (std::is_same_v<Rule, fleet::NotNegative>) return std::isfinite(value) && value >= 0;
  return true;
}

template <typename Rule, typename T>
void Enforce(absl::string_view name, const Rule& rule, const T& value, FieldChecks& f) {
  if constexpr (requires { rule.least; }) f.Between(name, value, rule.least, rule.most);
  if constexpr (std::is_same_v<Rule, fleet::NotNegative>) f.NotNegative(name, value);
}

template <typename Wire, typename Rule, typename T>
void Receive(absl::string_view name, const Wire& wire, const Rule& rule, T& value, FieldChecks& f) {
  if constexpr (std::is_enum_v<T>) {
    value = f.Enum(name, static_cast<int>(wire), LastOf(T()));
  } else if constexpr (Id<T>) {
    constexpr Wire kMost = std::numeric_limits<typename T::rep>::max();
    value = T(static_cast<typename T::rep>(f.Between<Wire>(name, wire, 0, kMost)));
  } else if constexpr (std::is_same_v<T, Duration>) {
    value = f.ReadDuration(name, wire);
  } else if constexpr (std::is_same_v<T, Digest>) {
    value = f.ReadDigest(name, wire);
  } else if constexpr (std::is_same_v<Rule, fleet::FreeText>) {
    value = ShortCleanText(wire);
  } else if constexpr (std::is_same_v<T, std::string>) {
    if constexpr (std::is_same_v<Rule, fleet::NotEmpty>) f.Require(!wire.empty(), name, rule.why);
    value = f.Name(name, wire);
  } else {
    static_assert(std::is_same_v<Wire, T>, "the struct and the message have different types");
    value = wire;
    if (!Obeys(rule, value)) Enforce(name, rule, value, f);
  }
}

// ---- columns

template <typename Usual, typename Rule>
const Rule& RuleOf(const fleet::Usually<Usual, Rule>& rule) {
  return rule.rule;
}
template <typename Rule>
const Rule& RuleOf(const Rule& rule) {
  return rule;
}

template <typename Column, typename Row>
bool IsUsual(const Column& column, const std::vector<Row>& rows) {
  if constexpr (requires { column.rule.usual; }) {
    return std::ranges::all_of(
        rows, [&](const Row& row) { return column.get(row) == column.rule.usual(row); });
  }
  return false;
}

template <typename Row, typename Repeated, typename Get>
void AddAll(const std::vector<Row>& rows, Repeated& to, const Get& get) {
  using Wire = typename Repeated::value_type;
  to.Reserve(static_cast<int>(rows.size()));
  for (const Row& row : rows) to.AddAlreadyReserved(ToSend<Wire, fleet::Any>(get(row)));
}

template <typename M, typename Row, typename Get, typename Access, typename Rule>
void AddColumn(const fleet::Column<Get, Access, Rule>& column, const std::vector<Row>& rows, M& m) {
  if (IsUsual(column, rows)) return;
  auto& to = *column.access(kMutable, m);
  if constexpr (kIsList<std::remove_cvref_t<decltype(column.get(rows[0]))>>) {
    size_t width = 0;  // of the longest
    if constexpr (std::is_same_v<Rule, fleet::Padded>) {
      for (const Row& row : rows) width = std::max(width, column.get(row).size());
    }
    for (const Row& row : rows) {
      const auto& values = column.get(row);
      to.Add(values.begin(), values.end());
      for (size_t i = values.size(); i < width; ++i) to.Add(0);
    }
  } else {
    AddAll(rows, to, column.get);
  }
}

template <typename M, typename Row, typename Get, typename Epoch, typename Counter, typename Rule>
void AddColumn(const fleet::FenceColumns<Get, Epoch, Counter, Rule>& column,
               const std::vector<Row>& rows, M& m) {
  if (IsUsual(column, rows)) return;
  AddAll(rows, *column.epoch(kMutable, m), [&](const Row& row) { return column.get(row).epoch; });
  AddAll(rows, *column.counter(kMutable, m),
         [&](const Row& row) { return column.get(row).counter; });
}

template <typename Row, typename M, typename Get, typename Access, typename Rule>
void CheckColumn(const fleet::Column<Get, Access, Rule>& column, const M& m, int rows,
                 FieldChecks& f) {
  const int size = column.access(kGet, m).size();
  using Member = std::remove_cvref_t<decltype(column.get(std::declval<Row&>()))>;
  if constexpr (kIsList<Member>) {
    f.Require(rows == 0 ? size == 0 : size % rows == 0, column.name,
              "not equally many for every client");
  } else if (!requires { column.rule.usual; } || size > 0) {
    f.ColumnSize(column.name, size, rows);
  }
}

template <typename Row, typename M, typename Get, typename Epoch, typename Counter, typename Rule>
void CheckColumn(const fleet::FenceColumns<Get, Epoch, Counter, Rule>& column, const M& m, int rows,
                 FieldChecks& f) {
  const int epochs = column.epoch(kGet, m).size(), counters = column.counter(kGet, m).size();
  if (requires { column.rule.usual; } && epochs == 0 && counters == 0) return;
  f.ColumnSize(column.name, epochs, rows);
  f.ColumnSize(column.counter_name, counters, rows);
}

// False: the column is absent, and every row has got its usual value.
template <typename Column, typename Row>
bool IsPresent(const Column& column, int size, std::vector<Row>& rows) {
  if constexpr (requires { column.rule.usual; }) {
    if (size == 0) {
      for (Row& row : rows) column.get(row) = column.rule.usual(std::as_const(row));
      return false;
    }
  }
  return true;
}

template <typename M, typename Row, typename Get, typename Access, typename Rule>
void ReadColumn(const fleet::Column<Get, Access, Rule>& column, const M& m, std::vector<Row>& rows,
                FieldChecks& f) {
  const auto& from = column.access(kGet, m);
  if (!IsPresent(column, from.size(), rows)) return;
  const int width = rows.empty() ? 0 : from.size() / static_cast<int>(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    auto& value = column.get(rows[i]);
    using Member = std::remove_cvref_t<decltype(value)>;
    const int row = static_cast<int>(i);
    if constexpr (kIsList<Member>) {
      value.assign(from.begin() + row * width, from.begin() + (row + 1) * width);
    } else if constexpr (Id<Member>) {
      value = Member(from.Get(row));
    } else {
      value = from.Get(row);
      if (!Obeys(RuleOf(column.rule), value))
        Enforce(absl::StrCat(column.name, "[", i, "]"), RuleOf(column.rule), value, f);
    }
  }
}

template <typename M, typename Row, typename Get, typename Epoch, typename Counter, typename Rule>
void ReadColumn(const fleet::FenceColumns<Get, Epoch, Counter, Rule>& column, const M& m,
                std::vector<Row>& rows, FieldChecks&) {
  const auto& epochs = column.epoch(kGet, m);
  const auto& counters = column.counter(kGet, m);
  if (!IsPresent(column, epochs.size(), rows)) return;
  for (size_t i = 0; i < rows.size(); ++i)
    column.get(rows[i]) = {epochs.Get(static_cast<int>(i)), counters.Get(static_cast<int>(i))};
}

template <typename M, typename Row>
absl::Status TakeColumns(const M& m, std::vector<Row>& rows) {
  FieldChecks f;
  const int size = m.client_size();
  fleet::ForEachColumn(fleet::Of<Row>(),
                       [&](const auto& column) { CheckColumn<Row>(column, m, size, f); });
  MACAW_RETURN_IF_ERROR(f.status());
  rows.resize(size);
  fleet::ForEachColumn(fleet::Of<Row>(),
                       [&](const auto& column) { ReadColumn(column, m, rows, f); });
  return f.status();
}

}  // namespace

// ---- messages

template <typename M, fleet::HasFields T>
void Fill(M& m, const T& value, const InlineRule& rule);
template <typename M, fleet::HasFields T>
absl::Status Take(const M& m, T& value, InlineBytes inline_bytes);

namespace {

bool IsThere(const fleet::Blob& blob) { return blob.named(); }
bool IsThere(const Fence& fence) { return fence != Fence(); }
template <typename T>
bool IsThere(const T&) {
  return true;
}

template <typename Field, typename Item, typename M>
void SendList(const Field& field, const std::vector<Item>& items, M& m, const InlineRule& rule) {
  if constexpr (std::is_arithmetic_v<Item>) {
    field.access(kMutable, m)->Add(items.begin(), items.end());
  } else if constexpr (std::is_same_v<Item, Digest>) {
    for (const Digest& item : items) field.access(kAdd, m, ToWire(item));
  } else if constexpr (fleet::HasColumns<Item>) {
    auto& columns = *field.access(kMutable, m);
    fleet::ForEachColumn(fleet::Of<Item>(),
                         [&](const auto& column) { AddColumn(column, items, columns); });
  } else {
    for (const Item& item : items) Fill(*field.access(kAdd, m), item, rule);
  }
}

template <typename Field, typename T, typename M>
void Send(const Field& field, const T& value, M& m, const InlineRule& rule) {
  if constexpr (Scalar<T>) {
    using Wire = std::remove_cvref_t<decltype(field.access(kGet, std::as_const(m)))>;
    field.access(kSet, m, ToSend<Wire, typename Field::RuleType>(value));
  } else if constexpr (kIsList<T>) {
    SendList(field, value, m, rule);
  } else if constexpr (std::is_same_v<T, fleet::Broadcast>) {
    SendList(field, value.channels, m, rule);
  } else if constexpr (kIsOptional<T>) {
    if (value.has_value()) Fill(*field.access(kMutable, m), *value, rule);
  } else if (IsThere(value)) {
    Fill(*field.access(kMutable, m), value, rule);
  }
}

template <typename Field, typename Item, typename M>
void ReadList(const Field& field, const M& m, std::vector<Item>& items, FieldChecks& f,
              InlineBytes inline_bytes) {
  const auto& from = field.access(kGet, m);
  if constexpr (std::is_arithmetic_v<Item>) {
    items.assign(from.begin(), from.end());
    if constexpr (std::is_same_v<typename Field::RuleType, fleet::Dimensions>)
      f.Dimensions(field.name, items);
  } else if constexpr (std::is_same_v<Item, Digest>) {
    for (const std::string& digest : from) items.push_back(f.ReadDigest(field.name, digest));
  } else if constexpr (fleet::HasColumns<Item>) {
    f.Nested(field.name, TakeColumns(from, items));
  } else {
    f.Each(field.name, from, items, [inline_bytes](const auto& message, Item& item) {
      return Take(message, item, inline_bytes);
    });
  }
}

template <typename Field, typename T, typename M>
void Read(const Field& field, const M& m, T& value, FieldChecks& f, InlineBytes inline_bytes) {
  if constexpr (Scalar<T>) {
    Receive(field.name, field.access(kGet, m), field.rule, value, f);
  } else if constexpr (kIsList<T>) {
    ReadList(field, m, value, f, inline_bytes);
  } else if constexpr (std::is_same_v<T, fleet::Broadcast>) {
    std::vector<fleet::Blob> channels;
    ReadList(field, m, channels, f, inline_bytes);
    value = fleet::Broadcast::Of(std::move(channels));
  } else if constexpr (kIsOptional<T>) {
    if (field.access(kHas, m))
      f.Nested(field.name, Take(field.access(kGet, m), value.emplace(), inline_bytes));
  } else {
    f.Nested(field.name, Take(field.access(kGet, m), value, inline_bytes));
  }
}

}  // namespace

template <typename M, fleet::HasFields T>
void Fill(M& m, const T& value, const InlineRule& rule) {
  fleet::ForEachField(value,
                      [&](const auto& field, const auto& one) { Send(field, one, m, rule); });
}

template <typename M, fleet::HasFields T>
absl::Status Take(const M& m, T& value, InlineBytes inline_bytes) {
  FieldChecks f;
  fleet::ForEachField(value,
                      [&](const auto& field, auto& one) { Read(field, m, one, f, inline_bytes); });
  CheckTogether(m, value, f);
  return f.status();
}

#define MACAW_CONVERSION(Struct, Message)                                                 \
  v1::Message ToWire(const Struct& value, const InlineRule& rule) {                       \
    v1::Message message;                                                                  \
    Fill(message, value, rule);                                                           \
    return message;                                                                       \
  }                                                                                       \
  absl::StatusOr<Struct> FromWire(const v1::Message& message, InlineBytes inline_bytes) { \
    Struct value;                                                                         \
    MACAW_RETURN_IF_ERROR(Take(message, value, inline_bytes));                            \
    return value;                                                                         \
  }
MACAW_FLEET_MESSAGES(MACAW_CONVERSION)
#undef MACAW_CONVERSION

}  // namespace macaw::wire
