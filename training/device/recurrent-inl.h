#pragma once

#include "device/math.h"
#include "training/device/products-inl.h"

// LSTM and GRU layers (Hochreiter and Schmidhuber, 1997; Cho et al., 2014), one layer each, with
// PyTorch's gates. What the inputs give to the gates is one product over all positions; what the
// states give is one product a position, forward and back. The gradients of the weights are again
// one product over all positions.
//
// Kept of every position: 4 · width floats. Of an LSTM the gates i, f, g, o. Of a GRU r, z, n, and
// the state's part of n, U·h + b. The backward pass writes the gradients of the sums that the gates
// are functions of over them; a GRU's fourth is that of the state's part.
namespace macaw::training::ondevice {

// Gates of positions, as a matrix. Those from `split` on stand `shift` further, since the state's
// part of a GRU's third gate is the fourth one.
struct Gates {
  const float* data;
  uint32_t stride;  // floats from a position to the next
  uint32_t split, shift;
  MACAW_INLINE_KERNEL uint32_t Place(uint32_t gate) const {
    return gate < split ? gate : gate + shift;
  }
};

// Outer: a position; along: a gate.
struct GatesByRow : Gates {
  using Outer = const float*;
  using Inner = uint32_t;
  static constexpr bool kAlongFast = true;
  MACAW_INLINE_KERNEL Outer At(uint32_t outer) const { return data + size_t{outer} * stride; }
  MACAW_INLINE_KERNEL Inner Along(uint32_t k) const { return Place(k); }
  MACAW_INLINE_KERNEL float Get(Outer row, Inner gate) const { return row[gate]; }
};

// Outer: a gate; along: a position.
struct GatesByColumn : Gates {
  using Outer = uint32_t;
  using Inner = const float*;
  static constexpr bool kAlongFast = false;
  MACAW_INLINE_KERNEL Outer At(uint32_t outer) const { return Place(outer); }
  MACAW_INLINE_KERNEL Inner Along(uint32_t k) const { return data + size_t{k} * stride; }
  MACAW_INLINE_KERNEL float Get(Outer gate, Inner row) const { return row[gate]; }
};

// The states before each position, with a column of ones behind. Outer: a unit; along: a position.
struct StatesBeforeAndOne {
  using Outer = uint32_t;
  using Inner = const float*;  // null: before the first position, where the state is 0
  static constexpr bool kAlongFast = false;
  const float* states;
  uint32_t width, positions;
  MACAW_INLINE_KERNEL Outer At(uint32_t outer) const { return outer; }
  MACAW_INLINE_KERNEL Inner Along(uint32_t k) const {
    return k / positions * positions == k ? nullptr : states + size_t{k - 1} * width;
  }
  MACAW_INLINE_KERNEL float Get(Outer unit, Inner row) const {
    const bool inside = (unit < width) & (row != nullptr);
    const float state = inside ? row[unit] : 0.0f;
    return unit < width ? state : 1.0f;
  }
};

// The memory of a recurrent layer in a pass.
struct Recurrent {
  uint32_t width, positions, gates;  // gates · width numbers come from the inputs
  float* kept;                       // [rows][positions][4 · width]
  float* cells;                      // [rows][positions][width]
  float* carry;
  const float* states;  // [rows][positions][width]
  const float *input_weight, *state_weight, *input_bias, *state_bias;

  MACAW_INLINE_KERNEL Recurrent(const Pass& pass, const Op& op)
      : width(op.out_vector.value),
        positions(op.positions),
        gates(op.kind == OpKind::kLstm ? 4 : 3),
        kept(pass.Kept(op.kept)),
        cells(pass.Kept(op.cells)),
        carry(pass.Kept(op.carry)),
        states(pass.Activation(op.out)),
        input_weight(pass.Weights(op.weight)),
        state_weight(pass.Weights(op.weight + 1)),
        input_bias(pass.Weights(op.weight + 2)),
        state_bias(pass.Weights(op.weight + 3)) {}

  // Of a row's position.
  MACAW_INLINE_KERNEL float* GatesOf(uint32_t row, uint32_t t) const {
    return kept + size_t{row * positions + t} * (4 * width);
  }
  MACAW_INLINE_KERNEL uint32_t StateAt(uint32_t row, uint32_t t) const {
    return (row * positions + t) * width;
  }
  // As the gradients of the sums with inputs, and of those with states.
  MACAW_INLINE_KERNEL Gates OfInputs() const { return {kept, 4 * width, 4 * width, 0}; }
  MACAW_INLINE_KERNEL Gates OfStates() const {
    return {kept, 4 * width, gates == 4 ? 4 * width : 2 * width, width};
  }
};

// One position of an LSTM: c = f·c' + i·g, h = o·tanh(c). `sums` are those with the inputs.
MACAW_INLINE_KERNEL void LstmStep(const device::Team& team, const Pass& pass, const Op& op,
                                  const Recurrent& net, uint32_t t) {
  float* const states = pass.Activation(op.out);
  const uint32_t width = net.width;
  for (uint32_t k = team.thread; k < pass.rows * width; k += team.threads) {
    const uint32_t row = op.out_vector.Quotient(k), unit = k - row * width;
    float* const gates = net.GatesOf(row, t) + unit;
    const float i = device::Sigmoid(gates[0]), f = device::Sigmoid(gates[width]);
    const float g = device::Tanh(gates[2 * width]), o = device::Sigmoid(gates[3 * width]);
    const uint32_t at = net.StateAt(row, t) + unit;
    const float cell = t == 0 ? i * g : device::Fma(f, net.cells[at - width], i * g);
    gates[0] = i;
    gates[width] = f;
    gates[2 * width] = g;
    gates[3 * width] = o;
    net.cells[at] = cell;
    states[at] = o * device::Tanh(cell);
  }
  team.Sync();
}

// One position of a GRU: n = tanh(W·x + b + r·(U·h' + b')), h = n + z·(h' − n). The carry has the
// sums with the states.
MACAW_INLINE_KERNEL void GruStep(const device::Team& team, const Pass& pass, const Op& op,
                                 const Recurrent& net, uint32_t t) {
  float* const states = pass.Activation(op.out);
  const uint32_t width = net.width;
  for (uint32_t k = team.thread; k < pass.rows * width; k += team.threads) {
    const uint32_t row = op.out_vector.Quotient(k), unit = k - row * width;
    float* const gates = net.GatesOf(row, t) + unit;
    const float* const sums = net.carry + size_t{row} * (3 * width) + unit;
    const float r = device::Sigmoid(gates[0] + sums[0]);
    const float z = device::Sigmoid(gates[width] + sums[width]);
    const float n = device::Tanh(device::Fma(r, sums[2 * width], gates[2 * width]));
    const uint32_t at = net.StateAt(row, t) + unit;
    const float before = t == 0 ? 0.0f : states[at - width];
    gates[0] = r;
    gates[width] = z;
    gates[2 * width] = n;
    gates[3 * width] = sums[2 * width];
    states[at] = device::Fma(z, before - n, n);
  }
  team.Sync();
}

MACAW_INLINE_KERNEL void RecurrentForward(const device::Team& team, const Pass& pass,
                                          const Op& op) {
  const Recurrent net(pass, op);
  const uint32_t width = net.width, sums = net.gates * width, inputs = op.in_vector.value;
  const bool lstm = op.kind == OpKind::kLstm;
  TeamGemm(team, op.forward, pass.rows * net.positions, sums, inputs,
           ByRow{pass.Activation(op.in), inputs}, ByRow{net.input_weight, inputs},
           [&](uint32_t m, uint32_t n, float sum) {
             net.kept[size_t{m} * (4 * width) + n] = sum + net.input_bias[n];
           });
  for (uint32_t t = 0; t < net.positions; ++t) {
    // Before the first position the state is 0, and a product of no terms.
    TeamGemm(team, op.step_forward, pass.rows, sums, t == 0 ? 0 : width,
             ByRow{net.states + (t == 0 ? 0 : t - 1) * width, net.positions * width},
             ByRow{net.state_weight, width}, [&](uint32_t m, uint32_t n, float sum) {
               sum += net.state_bias[n];
               if (lstm) {
                 net.GatesOf(m, t)[n] += sum;
               } else {
                 net.carry[size_t{m} * sums + n] = sum;
               }
             });
    if (lstm) {
      LstmStep(team, pass, op, net, t);
    } else {
      GruStep(team, pass, op, net, t);
    }
  }
}

// From the gradient of a position's state to those of the sums. The carry has what the next
// position gives to the state, behind it what it gives to the cell.
MACAW_INLINE_KERNEL void LstmStepBack(const device::Team& team, const Pass& pass, const Op& op,
                                      const Recurrent& net, uint32_t t) {
  const float* const d_out = pass.Gradient(op.out);
  const uint32_t width = net.width, count = pass.rows * width;
  float* const cell_carry = net.carry + count;
  const bool last = t + 1 == net.positions;
  for (uint32_t k = team.thread; k < count; k += team.threads) {
    const uint32_t row = op.out_vector.Quotient(k), unit = k - row * width;
    float* const gates = net.GatesOf(row, t) + unit;
    const float i = gates[0], f = gates[width], g = gates[2 * width], o = gates[3 * width];
    const uint32_t at = net.StateAt(row, t) + unit;
    const float d = last ? d_out[at] : d_out[at] + net.carry[k];
    const float tanh = device::Tanh(net.cells[at]);
    float d_cell = d * o * (1.0f - tanh * tanh);
    if (!last) d_cell += cell_carry[k];
    const float before = t == 0 ? 0.0f : net.cells[at - width];
    gates[0] = d_cell * g * (i * (1.0f - i));
    gates[width] = d_cell * before * (f * (1.0f - f));
    gates[2 * width] = d_cell * i * (1.0f - g * g);
    gates[3 * width] = d * tanh * (o * (1.0f - o));
    cell_carry[k] = d_cell * f;
    net.carry[k] = 0;
  }
  team.Sync();
}

// The carry is left with what the state before is given directly.
MACAW_INLINE_KERNEL void GruStepBack(const device::Team& team, const Pass& pass, const Op& op,
                                     const Recurrent& net, uint32_t t) {
  const float* const d_out = pass.Gradient(op.out);
  const uint32_t width = net.width;
  const bool last = t + 1 == net.positions;
  for (uint32_t k = team.thread; k < pass.rows * width; k += team.threads) {
    const uint32_t row = op.out_vector.Quotient(k), unit = k - row * width;
    float* const gates = net.GatesOf(row, t) + unit;
    const float r = gates[0], z = gates[width], n = gates[2 * width];
    const uint32_t at = net.StateAt(row, t) + unit;
    const float d = last ? d_out[at] : d_out[at] + net.carry[k];
    const float before = t == 0 ? 0.0f : net.states[at - width];
    const float d_n = d * (1.0f - z) * (1.0f - n * n);
    const float state_part = gates[3 * width];
    gates[0] = d_n * state_part * (r * (1.0f - r));
    gates[width] = d * (before - n) * (z * (1.0f - z));
    gates[2 * width] = d_n;
    gates[3 * width] = d_n * r;
    net.carry[k] = d * z;
  }
  team.Sync();
}

MACAW_INLINE_KERNEL void RecurrentBackward(const device::Team& team, const Pass& pass, const Op& op,
                                           bool to_input) {
  const Recurrent net(pass, op);
  const uint32_t width = net.width, sums = net.gates * width, inputs = op.in_vector.value;
  const uint32_t vectors = pass.rows * net.positions;
  for (uint32_t t = net.positions; t-- > 0;) {
    if (op.kind == OpKind::kLstm) {
      LstmStepBack(team, pass, op, net, t);
    } else {
      GruStepBack(team, pass, op, net, t);
    }
    if (t == 0) break;
    Gates of_states = net.OfStates();
    of_states.data += t * of_states.stride;
    of_states.stride *= net.positions;
    TeamGemm(team, op.step_backward, pass.rows, width, sums, GatesByRow{of_states},
             ByColumn{net.state_weight, width},
             [&](uint32_t m, uint32_t n, float sum) { net.carry[m * width + n] += sum; });
  }
  if (to_input) {
    const InputSink sink(pass, op.in, op.adds);
    TeamGemm(team, op.backward, vectors, inputs, sums, GatesByRow{net.OfInputs()},
             ByColumn{net.input_weight, inputs},
             [&](uint32_t m, uint32_t n, float sum) { sink.Put(m * inputs + n, sum); });
  }
  const Sink weight(pass, op.weight), bias(pass, op.weight + 2);
  if (weight.trains || bias.trains) {
    TeamGemm(team, op.gradient, sums, inputs + 1, vectors, GatesByColumn{net.OfInputs()},
             ByColumnAndOne{{pass.Activation(op.in), inputs}},
             [&](uint32_t m, uint32_t n, float sum) {
               n < inputs ? weight.Put(m * inputs + n, sum) : bias.Put(m, sum);
             });
  }
  const Sink state_weight(pass, op.weight + 1), state_bias(pass, op.weight + 3);
  if (!state_weight.trains && !state_bias.trains) return;
  TeamGemm(team, op.step_gradient, sums, width + 1, vectors, GatesByColumn{net.OfStates()},
           StatesBeforeAndOne{net.states, width, net.positions},
           [&](uint32_t m, uint32_t n, float sum) {
             n < width ? state_weight.Put(m * width + n, sum) : state_bias.Put(m, sum);
           });
}

}  // namespace macaw::training::ondevice
