#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

// What a list of the fields of a message is made of (fields.h has the lists).
namespace macaw::fleet {

// What is done to a field of a generated message, through its accessors.
enum class Do : uint8_t { kGet, kHas, kSet, kMutable, kAdd };
template <Do D>
using Doing = std::integral_constant<Do, D>;

// The accessors of the field `name`. Only those that are used need to exist.
#define MACAW_ACCESS(name)                                                \
  []<::macaw::fleet::Do D>(::macaw::fleet::Doing<D>, auto& message,       \
                           auto&&... value) -> decltype(auto) {           \
    if constexpr (D == ::macaw::fleet::Do::kGet) {                        \
      return message.name();                                              \
    } else if constexpr (D == ::macaw::fleet::Do::kHas) {                 \
      return message.has_##name();                                        \
    } else if constexpr (D == ::macaw::fleet::Do::kSet) {                 \
      return message.set_##name(std::forward<decltype(value)>(value)...); \
    } else if constexpr (D == ::macaw::fleet::Do::kMutable) {             \
      return message.mutable_##name();                                    \
    } else {                                                              \
      return message.add_##name(std::forward<decltype(value)>(value)...); \
    }                                                                     \
  }

// ---- Rules: what a receiver accepts beyond the field's type

struct Any {};  // every value. A text is a name: sent as it is, refused beyond 4096 bytes
template <typename T>
struct Between {  // from `least` to `most`
  constexpr Between(T from, T to) : least(from), most(to) {}
  T least, most;
};
struct NotEmpty {
  constexpr explicit NotEmpty(const char* reason) : why(reason) {}
  const char* why;
};
struct NotNegative {};  // a finite number, 0 or above
struct FreeText {};     // both ends cut the text and replace what a protobuf string cannot hold
struct Dimensions {};   // of a shape

// ---- Fields

// `name` is the field's name in fleet.proto; `access` calls its accessors.
template <typename T, typename Member, typename Access, typename Rule>
struct Field {
  using RuleType = Rule;
  const char* name;
  Member T::*member;
  Access access;
  Rule rule;
};
template <typename T, typename Member, typename Access, typename Rule = Any>
constexpr auto MakeField(const char* name, Member T::*member, Access access, Rule rule = {}) {
  return Field<T, Member, Access, Rule>{name, member, access, rule};
}

// ---- Columns: lists of clients are sent as one array for each of their members

// `get(row)` is a reference to the member. A column may be absent where every row has the value
// usual(row): see Usually.
template <typename Get, typename Access, typename Rule>
struct Column {
  using RuleType = Rule;
  const char* name;
  Get get;
  Access access;
  Rule rule;
};
template <typename Get, typename Access, typename Rule = Any>
constexpr auto MakeColumn(const char* name, Get get, Access access, Rule rule = {}) {
  return Column<Get, Access, Rule>{name, get, access, rule};
}

// A fence is two columns, which come together.
template <typename Get, typename Epoch, typename Counter, typename Rule>
struct FenceColumns {
  using RuleType = Rule;
  const char *name, *counter_name;  // `name`: of the epochs
  Get get;
  Epoch epoch;
  Counter counter;
  Rule rule;
};
template <typename Get, typename Epoch, typename Counter, typename Rule = Any>
constexpr auto MakeFenceColumns(const char* epoch_name, const char* counter_name, Get get,
                                Epoch epoch, Counter counter, Rule rule = {}) {
  return FenceColumns<Get, Epoch, Counter, Rule>{epoch_name, counter_name, get,
                                                 epoch,      counter,      rule};
}

// The column is absent where every row has its usual value.
template <typename Usual, typename Rule = Any>
struct Usually {
  constexpr explicit Usually(Usual value, Rule checked = {}) : usual(value), rule(checked) {}
  Usual usual;
  Rule rule;
};

// Of a member that is itself a list of numbers: one array has those of all rows, the same number of
// each. The lists of a sender have one length; with Padded, shorter ones are filled with zeros.
struct Padded {};

// ---- Visiting

template <typename T>
using Of = std::type_identity<T>;
template <typename T>
concept HasFields = requires {
  FieldsOf(Of<T>());
};
template <typename T>
concept HasColumns = requires {
  ColumnsOf(Of<T>());
};

// visit(field, value) for each field of the message, in the order of its list.
template <typename T, typename Visitor>
void ForEachField(T&& message, const Visitor& visit) {
  std::apply([&](const auto&... field) { (visit(field, message.*field.member), ...); },
             FieldsOf(Of<std::remove_cvref_t<T>>()));
}

// visit(column) for each column of such rows.
template <typename Row, typename Visitor>
void ForEachColumn(Of<Row> of, const Visitor& visit) {
  std::apply([&](const auto&... column) { (visit(column), ...); }, ColumnsOf(of));
}

}  // namespace macaw::fleet
