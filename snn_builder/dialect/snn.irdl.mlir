// SPDX-License-Identifier: Apache-2.0
//
// The snn dialect: one timestep of a spiking network, over memrefs. Every operation writes into its operands and has no
// results: state (v, i) is updated in place, y, spikes and out are written. One operation serves floats and integers;
// the element type of the written memref decides, so the neuron operations carry both parameter sets (<name>_float and
// <name>_int, the latter with d_scale fraction bits). A parameter that differs between neurons comes as a table operand
// instead, and its two attributes are 0.
//
// What IRDL cannot say (shapes agree, element types fit) is checked by snn_builder.dialect.verify. The constraint
// values are repeated on purpose: using one value twice would mean that the two types, or attributes, are equal.
irdl.dialect @snn {
  // y[o] = (sum over i ascending, from +0, of w[o,i] * x[i]) + b[o]. Integer weights stand for w * 2^w_scale. Weights of
  // rank 3 are laid out for the event form, see gather.
  irdl.operation @linear {
    %x = irdl.base "!builtin.memref"
    %w = irdl.base "!builtin.memref"
    %b = irdl.base "!builtin.memref"
    %y = irdl.base "!builtin.memref"
    irdl.operands(x: %x, w: %w, b: optional %b, y: %y)
    %w_scale = irdl.base "#builtin.integer"
    irdl.attributes {"w_scale" = %w_scale}
  }

  // y = x * 2^shift, rounded towards minus infinity; integers only. saturate: clamped to 32 bits, else known to fit.
  irdl.operation @rescale {
    %x = irdl.base "!builtin.memref"
    %y = irdl.base "!builtin.memref"
    irdl.operands(x: %x, y: %y)
    %shift = irdl.base "#builtin.integer"
    %true = irdl.is true
    %false = irdl.is false
    %saturate = irdl.any_of(%true, %false)
    irdl.attributes {"shift" = %shift, "saturate" = %saturate}
  }

  // y = ((x0 + x1) + x2) ...; integers: the exact sum, then clamped to 32 bits if saturate. All xs are of one type, as a
  // variadic operand must be; integers of another type (spikes among sums) come in a group of their own.
  irdl.operation @sum {
    %xs = irdl.base "!builtin.memref"
    %others = irdl.base "!builtin.memref"
    %y = irdl.base "!builtin.memref"
    irdl.operands(xs: variadic %xs, others: variadic %others, y: %y)
    %true = irdl.is true
    %false = irdl.is false
    %saturate = irdl.any_of(%true, %false)
    irdl.attributes {"saturate" = %saturate}
  }

  // Floats: y = gain * x. Integers: y = (gain_int * x) >> gain_shift in 64 bits. Tables: m (gain) and e (shift).
  irdl.operation @gain {
    %x = irdl.base "!builtin.memref"
    %y = irdl.base "!builtin.memref"
    %m = irdl.base "!builtin.memref"
    %e = irdl.base "!builtin.memref"
    irdl.operands(x: %x, y: %y, m: optional %m, e: optional %e)
    %gain_float = irdl.base "#builtin.float"
    %gain_int = irdl.base "#builtin.integer"
    %gain_shift = irdl.base "#builtin.integer"
    %true = irdl.is true
    %false = irdl.is false
    %saturate = irdl.any_of(%true, %false)
    irdl.attributes {"gain_float" = %gain_float, "gain_int" = %gain_int, "gain_shift" = %gain_shift,
                     "saturate" = %saturate}
  }

  // Leaky integrator: v = (decay * v + x) + leak. Integers: ((decay * v) >> d_scale) + x + leak, computed in
  // product_bits (32 or 64).
  irdl.operation @li {
    %x = irdl.base "!builtin.memref"
    %v = irdl.base "!builtin.memref"
    %decay = irdl.base "!builtin.memref"
    %leak = irdl.base "!builtin.memref"
    irdl.operands(x: %x, v: %v, decay: optional %decay, leak: optional %leak)
    %decay_float = irdl.base "#builtin.float"
    %decay_int = irdl.base "#builtin.integer"
    %leak_float = irdl.base "#builtin.float"
    %leak_int = irdl.base "#builtin.integer"
    %d_scale = irdl.base "#builtin.integer"
    %true = irdl.is true
    %false = irdl.is false
    %saturate = irdl.any_of(%true, %false)
    %32 = irdl.is 32 : i64
    %64 = irdl.is 64 : i64
    %product_bits = irdl.any_of(%32, %64)
    irdl.attributes {"decay_float" = %decay_float, "decay_int" = %decay_int, "leak_float" = %leak_float,
                     "leak_int" = %leak_int, "d_scale" = %d_scale, "saturate" = %saturate,
                     "product_bits" = %product_bits}
  }

  // li, then spikes = v > threshold; where it fired v = reset, or v - threshold if subtract. With reset_delay 1 this
  // happens in the next step, where the old v is still above the threshold: before it decays, or after if subtract.
  irdl.operation @lif {
    %x = irdl.base "!builtin.memref"
    %v = irdl.base "!builtin.memref"
    %spikes = irdl.base "!builtin.memref"
    %decay = irdl.base "!builtin.memref"
    %leak = irdl.base "!builtin.memref"
    %threshold = irdl.base "!builtin.memref"
    %reset = irdl.base "!builtin.memref"
    irdl.operands(x: %x, v: %v, spikes: %spikes, decay: optional %decay, leak: optional %leak,
                  threshold: optional %threshold, reset: optional %reset)
    %decay_float = irdl.base "#builtin.float"
    %decay_int = irdl.base "#builtin.integer"
    %leak_float = irdl.base "#builtin.float"
    %leak_int = irdl.base "#builtin.integer"
    %threshold_float = irdl.base "#builtin.float"
    %threshold_int = irdl.base "#builtin.integer"
    %reset_float = irdl.base "#builtin.float"
    %reset_int = irdl.base "#builtin.integer"
    %d_scale = irdl.base "#builtin.integer"
    %true = irdl.is true
    %false = irdl.is false
    %subtract = irdl.any_of(%true, %false)
    %reset_delay = irdl.base "#builtin.integer"
    %saturate = irdl.any_of(%true, %false)
    %32 = irdl.is 32 : i64
    %64 = irdl.is 64 : i64
    %product_bits = irdl.any_of(%32, %64)
    irdl.attributes {"decay_float" = %decay_float, "decay_int" = %decay_int, "leak_float" = %leak_float,
                     "leak_int" = %leak_int, "threshold_float" = %threshold_float, "threshold_int" = %threshold_int,
                     "reset_float" = %reset_float, "reset_int" = %reset_int, "d_scale" = %d_scale,
                     "subtract" = %subtract, "reset_delay" = %reset_delay,
                     "saturate" = %saturate, "product_bits" = %product_bits}
  }

  // i = cur_decay * i + x (integers: ((cur_decay * i) >> d_scale) + x), then li with the new i in place of x.
  irdl.operation @cubali {
    %x = irdl.base "!builtin.memref"
    %i = irdl.base "!builtin.memref"
    %v = irdl.base "!builtin.memref"
    %cur_decay = irdl.base "!builtin.memref"
    %vol_decay = irdl.base "!builtin.memref"
    %leak = irdl.base "!builtin.memref"
    irdl.operands(x: %x, i: %i, v: %v, cur_decay: optional %cur_decay, vol_decay: optional %vol_decay,
                  leak: optional %leak)
    %cur_decay_float = irdl.base "#builtin.float"
    %cur_decay_int = irdl.base "#builtin.integer"
    %vol_decay_float = irdl.base "#builtin.float"
    %vol_decay_int = irdl.base "#builtin.integer"
    %leak_float = irdl.base "#builtin.float"
    %leak_int = irdl.base "#builtin.integer"
    %d_scale = irdl.base "#builtin.integer"
    %true = irdl.is true
    %false = irdl.is false
    %saturate = irdl.any_of(%true, %false)
    %32 = irdl.is 32 : i64
    %64 = irdl.is 64 : i64
    %product_bits = irdl.any_of(%32, %64)
    irdl.attributes {"cur_decay_float" = %cur_decay_float, "cur_decay_int" = %cur_decay_int,
                     "vol_decay_float" = %vol_decay_float, "vol_decay_int" = %vol_decay_int,
                     "leak_float" = %leak_float, "leak_int" = %leak_int, "d_scale" = %d_scale,
                     "saturate" = %saturate, "product_bits" = %product_bits}
  }

  // cubali, then spikes and reset as in lif.
  irdl.operation @cubalif {
    %x = irdl.base "!builtin.memref"
    %i = irdl.base "!builtin.memref"
    %v = irdl.base "!builtin.memref"
    %spikes = irdl.base "!builtin.memref"
    %cur_decay = irdl.base "!builtin.memref"
    %vol_decay = irdl.base "!builtin.memref"
    %leak = irdl.base "!builtin.memref"
    %threshold = irdl.base "!builtin.memref"
    %reset = irdl.base "!builtin.memref"
    irdl.operands(x: %x, i: %i, v: %v, spikes: %spikes, cur_decay: optional %cur_decay,
                  vol_decay: optional %vol_decay, leak: optional %leak, threshold: optional %threshold,
                  reset: optional %reset)
    %cur_decay_float = irdl.base "#builtin.float"
    %cur_decay_int = irdl.base "#builtin.integer"
    %vol_decay_float = irdl.base "#builtin.float"
    %vol_decay_int = irdl.base "#builtin.integer"
    %leak_float = irdl.base "#builtin.float"
    %leak_int = irdl.base "#builtin.integer"
    %threshold_float = irdl.base "#builtin.float"
    %threshold_int = irdl.base "#builtin.integer"
    %reset_float = irdl.base "#builtin.float"
    %reset_int = irdl.base "#builtin.integer"
    %d_scale = irdl.base "#builtin.integer"
    %true = irdl.is true
    %false = irdl.is false
    %subtract = irdl.any_of(%true, %false)
    %reset_delay = irdl.base "#builtin.integer"
    %saturate = irdl.any_of(%true, %false)
    %32 = irdl.is 32 : i64
    %64 = irdl.is 64 : i64
    %product_bits = irdl.any_of(%32, %64)
    irdl.attributes {"cur_decay_float" = %cur_decay_float, "cur_decay_int" = %cur_decay_int,
                     "vol_decay_float" = %vol_decay_float, "vol_decay_int" = %vol_decay_int,
                     "leak_float" = %leak_float, "leak_int" = %leak_int, "threshold_float" = %threshold_float,
                     "threshold_int" = %threshold_int, "reset_float" = %reset_float, "reset_int" = %reset_int,
                     "d_scale" = %d_scale, "subtract" = %subtract, "reset_delay" = %reset_delay,
                     "saturate" = %saturate,
                     "product_bits" = %product_bits}
  }

  // What leaves the network: a copy, x seen as rows x columns and out as its transpose (rows = 1: as it is). Floats are
  // x + 0.0, so that no -0 leaves; integers may be wider in out.
  irdl.operation @output {
    %x = irdl.base "!builtin.memref"
    %out = irdl.base "!builtin.memref"
    irdl.operands(x: %x, out: %out)
    %rows = irdl.base "#builtin.integer"
    irdl.attributes {"rows" = %rows}
  }

  // A plain copy, for what the next step reads.
  irdl.operation @copy {
    %x = irdl.base "!builtin.memref"
    %y = irdl.base "!builtin.memref"
    irdl.operands(x: %x, y: %y)
  }

  // What follows works on flat arrays. Values of shape (C, H, W) lie in them with the channels last.

  // y[j,i] = x[i,j]; x is rows x columns.
  irdl.operation @transpose {
    %x = irdl.base "!builtin.memref"
    %y = irdl.base "!builtin.memref"
    irdl.operands(x: %x, y: %y)
    %rows = irdl.base "#builtin.integer"
    irdl.attributes {"rows" = %rows}
  }

  // A convolution, w (outputs, height, width, inputs / groups). Each output is the sum over the kernel's rows, columns
  // and inputs ascending, from +0, then + b. input and output are (H, W, C), padding is (top, left) and zeros; what is
  // needed behind the input follows from the output. Integer weights stand for w * 2^w_scale. Weights of rank 3 are laid
  // out for the event form, see gather2d.
  irdl.operation @conv2d {
    %x = irdl.base "!builtin.memref"
    %w = irdl.base "!builtin.memref"
    %b = irdl.base "!builtin.memref"
    %y = irdl.base "!builtin.memref"
    irdl.operands(x: %x, w: %w, b: optional %b, y: %y)
    %input = irdl.base "#builtin.dense_array"
    %output = irdl.base "#builtin.dense_array"
    %kernel = irdl.base "#builtin.dense_array"
    %stride = irdl.base "#builtin.dense_array"
    %padding = irdl.base "#builtin.dense_array"
    %dilation = irdl.base "#builtin.dense_array"
    %groups = irdl.base "#builtin.integer"
    %w_scale = irdl.base "#builtin.integer"
    irdl.attributes {"input" = %input, "output" = %output, "kernel" = %kernel, "stride" = %stride,
                     "padding" = %padding, "dilation" = %dilation, "groups" = %groups, "w_scale" = %w_scale}
  }

  // Per channel the sum over each window, rows and columns ascending, from +0; shapes and padding as in conv2d.
  // Integers: the exact sum, clamped to 32 bits if saturate, else known to fit.
  irdl.operation @sumpool2d {
    %x = irdl.base "!builtin.memref"
    %y = irdl.base "!builtin.memref"
    irdl.operands(x: %x, y: %y)
    %input = irdl.base "#builtin.dense_array"
    %output = irdl.base "#builtin.dense_array"
    %kernel = irdl.base "#builtin.dense_array"
    %stride = irdl.base "#builtin.dense_array"
    %padding = irdl.base "#builtin.dense_array"
    %true = irdl.is true
    %false = irdl.is false
    %saturate = irdl.any_of(%true, %false)
    irdl.attributes {"input" = %input, "output" = %output, "kernel" = %kernel, "stride" = %stride,
                     "padding" = %padding, "saturate" = %saturate}
  }

  // y = w * x, element by element. Integer weights stand for w * 2^w_scale.
  irdl.operation @scale {
    %x = irdl.base "!builtin.memref"
    %w = irdl.base "!builtin.memref"
    %y = irdl.base "!builtin.memref"
    irdl.operands(x: %x, w: %w, y: %y)
    %w_scale = irdl.base "#builtin.integer"
    irdl.attributes {"w_scale" = %w_scale}
  }

  // spikes = x > threshold.
  irdl.operation @threshold {
    %x = irdl.base "!builtin.memref"
    %spikes = irdl.base "!builtin.memref"
    %threshold = irdl.base "!builtin.memref"
    irdl.operands(x: %x, spikes: %spikes, threshold: optional %threshold)
    %threshold_float = irdl.base "#builtin.float"
    %threshold_int = irdl.base "#builtin.integer"
    irdl.attributes {"threshold_float" = %threshold_float, "threshold_int" = %threshold_int}
  }

  // y[i] = what delay_write stored into the line steps[i] steps ago; x[i] where that is 0. Without the table all are
  // depth steps. line has depth slots of one value per element; at is the slot that is written next (a single slot
  // needs none).
  irdl.operation @delay_read {
    %line = irdl.base "!builtin.memref"
    %at = irdl.base "!builtin.memref"
    %y = irdl.base "!builtin.memref"
    %x = irdl.base "!builtin.memref"
    %steps = irdl.base "!builtin.memref"
    irdl.operands(line: %line, at: optional %at, y: %y, x: optional %x, steps: optional %steps)
    %depth = irdl.base "#builtin.integer"
    irdl.attributes {"depth" = %depth}
  }

  // Stores x into slot at, and moves at on.
  irdl.operation @delay_write {
    %x = irdl.base "!builtin.memref"
    %line = irdl.base "!builtin.memref"
    %at = irdl.base "!builtin.memref"
    irdl.operands(x: %x, line: %line, at: optional %at)
    %depth = irdl.base "#builtin.integer"
    irdl.attributes {"depth" = %depth}
  }

  // The event form: spikes travel as lists of indices, ascending. A list is an array of unsigned integers and, in an
  // array of one element, how many of them are there.

  // Lists the elements of x that are not 0; graded: whether one of them is not 1. With more rows than one, of the
  // transpose of x, and what is listed is stored there: the rest of y is not written.
  irdl.operation @events {
    %x = irdl.base "!builtin.memref"
    %events = irdl.base "!builtin.memref"
    %count = irdl.base "!builtin.memref"
    %graded = irdl.base "!builtin.memref"
    %y = irdl.base "!builtin.memref"
    irdl.operands(x: %x, events: %events, count: %count, graded: optional %graded, y: optional %y)
    %rows = irdl.base "#builtin.integer"
    irdl.attributes {"rows" = %rows}
  }

  // The reverse: y = 1 where listed, else 0.
  irdl.operation @spread {
    %events = irdl.base "!builtin.memref"
    %count = irdl.base "!builtin.memref"
    %y = irdl.base "!builtin.memref"
    irdl.operands(events: %events, count: %count, y: %y)
  }

  // Copies a list.
  irdl.operation @keep {
    %events = irdl.base "!builtin.memref"
    %count = irdl.base "!builtin.memref"
    %kept = irdl.base "!builtin.memref"
    %kept_count = irdl.base "!builtin.memref"
    irdl.operands(events: %events, count: %count, kept: %kept, kept_count: %kept_count)
  }

  // Where the elements of each place begin in a list: first[p] = how many listed indices are below p * channels.
  irdl.operation @places {
    %events = irdl.base "!builtin.memref"
    %count = irdl.base "!builtin.memref"
    %first = irdl.base "!builtin.memref"
    irdl.operands(events: %events, count: %count, first: %first)
    %channels = irdl.base "#builtin.integer"
    irdl.attributes {"channels" = %channels}
  }

  // sumpool2d's event form: y = 0, then each listed input adds its x (without x 1, and where graded is there and 0 too)
  // to the windows that see it, which are known to hold the sum.
  irdl.operation @scatter2d {
    %x = irdl.base "!builtin.memref"
    %events = irdl.base "!builtin.memref"
    %count = irdl.base "!builtin.memref"
    %graded = irdl.base "!builtin.memref"
    %y = irdl.base "!builtin.memref"
    irdl.operands(x: optional %x, events: %events, count: %count, graded: optional %graded, y: %y)
    %input = irdl.base "#builtin.dense_array"
    %output = irdl.base "#builtin.dense_array"
    %kernel = irdl.base "#builtin.dense_array"
    %stride = irdl.base "#builtin.dense_array"
    %padding = irdl.base "#builtin.dense_array"
    irdl.attributes {"input" = %input, "output" = %output, "kernel" = %kernel, "stride" = %stride,
                     "padding" = %padding}
  }

  // A layer: the operations of its region, each over all n outputs, done together, block by block of outputs. Buffers
  // that are declared in the region hold what only these operations see.
  irdl.operation @event {
    %n = irdl.base "#builtin.integer"
    irdl.attributes {"n" = %n}
    %body = irdl.region
    irdl.regions(body: %body)
  }

  // In a layer, linear's event form: y[o] = (sum over the listed i, ascending, from +0, of w[o,i] * x[i]) + b[o].
  // Without x every listed input counts as 1, and where graded is there and 0 too; without a list all inputs count.
  // Weights are [block of outputs][input][output]; 32-bit words hold four of them each, as bytes w + 128.
  irdl.operation @gather {
    %x = irdl.base "!builtin.memref"
    %events = irdl.base "!builtin.memref"
    %count = irdl.base "!builtin.memref"
    %graded = irdl.base "!builtin.memref"
    %w = irdl.base "!builtin.memref"
    %b = irdl.base "!builtin.memref"
    %y = irdl.base "!builtin.memref"
    irdl.operands(x: optional %x, events: optional %events, count: optional %count, graded: optional %graded, w: %w,
                  b: optional %b, y: %y)
    %w_scale = irdl.base "#builtin.integer"
    irdl.attributes {"w_scale" = %w_scale}
  }

  // In a layer, conv2d's event form: gather, where an output sees the listed inputs of its window. first: where each place,
  // with groups each group of a place, begins in the list. Weights are [block of outputs, group by group][tap][output],
  // the taps (height, width, inputs / groups).
  irdl.operation @gather2d {
    %x = irdl.base "!builtin.memref"
    %events = irdl.base "!builtin.memref"
    %count = irdl.base "!builtin.memref"
    %first = irdl.base "!builtin.memref"
    %graded = irdl.base "!builtin.memref"
    %w = irdl.base "!builtin.memref"
    %b = irdl.base "!builtin.memref"
    %y = irdl.base "!builtin.memref"
    irdl.operands(x: optional %x, events: %events, count: %count, first: %first, graded: optional %graded, w: %w,
                  b: optional %b, y: %y)
    %input = irdl.base "#builtin.dense_array"
    %output = irdl.base "#builtin.dense_array"
    %kernel = irdl.base "#builtin.dense_array"
    %stride = irdl.base "#builtin.dense_array"
    %padding = irdl.base "#builtin.dense_array"
    %dilation = irdl.base "#builtin.dense_array"
    %groups = irdl.base "#builtin.integer"
    %w_scale = irdl.base "#builtin.integer"
    irdl.attributes {"input" = %input, "output" = %output, "kernel" = %kernel, "stride" = %stride,
                     "padding" = %padding, "dilation" = %dilation, "groups" = %groups, "w_scale" = %w_scale}
  }

  // In a layer: appends the outputs that spike to a list.
  irdl.operation @emit {
    %spikes = irdl.base "!builtin.memref"
    %events = irdl.base "!builtin.memref"
    %count = irdl.base "!builtin.memref"
    irdl.operands(spikes: %spikes, events: %events, count: %count)
  }
}
