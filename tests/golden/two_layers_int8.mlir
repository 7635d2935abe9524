module attributes {snn.generator = "snn-builder test", snn.kernel = "dense", snn.mode = "int8", snn.name = "net"} {
  memref.global constant @fc1_w : memref<4x6xi8>
  memref.global constant @fc2_w : memref<2x4xi8>
  memref.global constant @fc2_b : memref<2xi32>
  memref.global constant @lif2_decay : memref<2xi32>
  func.func @init(%lif1_v: memref<4xi32> {snn.name = "lif1_v", snn.role = "state"} loc("lif1_v"), %lif2_i: memref<2xi32> {snn.name = "lif2_i", snn.role = "state"} loc("lif2_i"), %lif2_v: memref<2xi32> {snn.name = "lif2_v", snn.role = "state"} loc("lif2_v"), %lif1_spikes: memref<4xi8> {snn.name = "lif1_spikes", snn.role = "state"} loc("lif1_spikes")) {
    %c0_i32 = arith.constant 0 : i32
    linalg.fill ins(%c0_i32 : i32) outs(%lif1_v : memref<4xi32>) loc("lif1_v (at rest)")
    %c0_i32_0 = arith.constant 0 : i32
    linalg.fill ins(%c0_i32_0 : i32) outs(%lif2_i : memref<2xi32>) loc("lif2_i (at rest)")
    %c0_i32_1 = arith.constant 0 : i32
    linalg.fill ins(%c0_i32_1 : i32) outs(%lif2_v : memref<2xi32>) loc("lif2_v (at rest)")
    %c0_i8 = arith.constant 0 : i8
    linalg.fill ins(%c0_i8 : i8) outs(%lif1_spikes : memref<4xi8>) loc("lif1_spikes (at rest)")
    return
  }
  func.func @step(%lif1_v: memref<4xi32> {snn.name = "lif1_v", snn.role = "state"} loc("lif1_v"), %lif2_i: memref<2xi32> {snn.name = "lif2_i", snn.role = "state"} loc("lif2_i"), %lif2_v: memref<2xi32> {snn.name = "lif2_v", snn.role = "state"} loc("lif2_v"), %lif1_spikes: memref<4xi8> {snn.name = "lif1_spikes", snn.role = "state"} loc("lif1_spikes"), %in: memref<6xi8> {snn.name = "in", snn.role = "input"} loc("in"), %out: memref<2xi8> {snn.name = "out", snn.role = "output"} loc("out")) {
    %fc1_w = memref.get_global @fc1_w : memref<4x6xi8> loc("fc1_w")
    %fc2_w = memref.get_global @fc2_w : memref<2x4xi8> loc("fc2_w")
    %fc2_b = memref.get_global @fc2_b : memref<2xi32> loc("fc2_b")
    %lif2_decay = memref.get_global @lif2_decay : memref<2xi32> loc("lif2_decay")
    %fc1 = memref.alloca() : memref<4xi32> loc("fc1")
    %fc2 = memref.alloca() : memref<2xi32> loc("fc2")
    "snn.linear"(%in, %fc1_w, %fc1) {operandSegmentSizes = array<i32: 1, 1, 0, 1>, w_scale = 6 : i64} : (memref<6xi8>, memref<4x6xi8>, memref<4xi32>) -> () loc("fc1 (Linear 6 -> 4)")
    "snn.rescale"(%fc1, %fc1) {operandSegmentSizes = array<i32: 1, 1>, saturate = false, shift = 6 : i64} : (memref<4xi32>, memref<4xi32>) -> () loc("fc1 (to Q12: << 6)")
    "snn.lif"(%fc1, %lif1_v, %lif1_spikes) {d_scale = 12 : i64, decay_float = 9.000000e-01 : f64, decay_int = 3686 : i64, leak_float = 0.000000e+00 : f64, leak_int = 0 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, product_bits = 64 : i64, reset_delay = 0 : i64, reset_float = 0.000000e+00 : f64, reset_int = 0 : i64, saturate = true, subtract = false, threshold_float = 1.000000e+00 : f64, threshold_int = 4096 : i64} : (memref<4xi32>, memref<4xi32>, memref<4xi8>) -> () loc("lif1 (LIF 4)")
    "snn.linear"(%lif1_spikes, %fc2_w, %fc2_b, %fc2) {operandSegmentSizes = array<i32: 1, 1, 1, 1>, w_scale = 5 : i64} : (memref<4xi8>, memref<2x4xi8>, memref<2xi32>, memref<2xi32>) -> () loc("fc2 (Affine 4 -> 2)")
    "snn.rescale"(%fc2, %fc2) {operandSegmentSizes = array<i32: 1, 1>, saturate = true, shift = 7 : i64} : (memref<2xi32>, memref<2xi32>) -> () loc("fc2 (to Q12: << 7)")
    "snn.cubalif"(%fc2, %lif2_i, %lif2_v, %out, %lif2_decay) {cur_decay_float = 5.000000e-01 : f64, cur_decay_int = 2048 : i64, d_scale = 12 : i64, leak_float = -1.000000e-02 : f64, leak_int = -41 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 0, 0, 0>, product_bits = 64 : i64, reset_delay = 0 : i64, reset_float = 0.000000e+00 : f64, reset_int = 0 : i64, saturate = true, subtract = false, threshold_float = 5.000000e-01 : f64, threshold_int = 2048 : i64, vol_decay_float = 0.000000e+00 : f64, vol_decay_int = 0 : i64} : (memref<2xi32>, memref<2xi32>, memref<2xi32>, memref<2xi8>, memref<2xi32>) -> () loc("lif2 (CubaLIF 2)")
    return
  }
}
