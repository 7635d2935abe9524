module attributes {snn.generator = "snn-builder test", snn.kernel = "dense", snn.mode = "f32", snn.name = "net"} {
  memref.global constant @fc1_w : memref<4x6xf32>
  memref.global constant @fc2_w : memref<2x4xf32>
  memref.global constant @fc2_b : memref<2xf32>
  memref.global constant @lif2_decay : memref<2xf32>
  func.func @init(%lif1_v: memref<4xf32> {snn.name = "lif1_v", snn.role = "state"} loc("lif1_v"), %lif2_i: memref<2xf32> {snn.name = "lif2_i", snn.role = "state"} loc("lif2_i"), %lif2_v: memref<2xf32> {snn.name = "lif2_v", snn.role = "state"} loc("lif2_v"), %lif1_spikes: memref<4xf32> {snn.name = "lif1_spikes", snn.role = "state"} loc("lif1_spikes")) {
    %cst = arith.constant 0.000000e+00 : f32
    linalg.fill ins(%cst : f32) outs(%lif1_v : memref<4xf32>) loc("lif1_v (at rest)")
    %cst_0 = arith.constant 0.000000e+00 : f32
    linalg.fill ins(%cst_0 : f32) outs(%lif2_i : memref<2xf32>) loc("lif2_i (at rest)")
    %cst_1 = arith.constant 0.000000e+00 : f32
    linalg.fill ins(%cst_1 : f32) outs(%lif2_v : memref<2xf32>) loc("lif2_v (at rest)")
    %cst_2 = arith.constant 0.000000e+00 : f32
    linalg.fill ins(%cst_2 : f32) outs(%lif1_spikes : memref<4xf32>) loc("lif1_spikes (at rest)")
    return
  }
  func.func @step(%lif1_v: memref<4xf32> {snn.name = "lif1_v", snn.role = "state"} loc("lif1_v"), %lif2_i: memref<2xf32> {snn.name = "lif2_i", snn.role = "state"} loc("lif2_i"), %lif2_v: memref<2xf32> {snn.name = "lif2_v", snn.role = "state"} loc("lif2_v"), %lif1_spikes: memref<4xf32> {snn.name = "lif1_spikes", snn.role = "state"} loc("lif1_spikes"), %in: memref<6xf32> {snn.name = "in", snn.role = "input"} loc("in"), %out: memref<2xf32> {snn.name = "out", snn.role = "output"} loc("out")) {
    %fc1_w = memref.get_global @fc1_w : memref<4x6xf32> loc("fc1_w")
    %fc2_w = memref.get_global @fc2_w : memref<2x4xf32> loc("fc2_w")
    %fc2_b = memref.get_global @fc2_b : memref<2xf32> loc("fc2_b")
    %lif2_decay = memref.get_global @lif2_decay : memref<2xf32> loc("lif2_decay")
    %fc1 = memref.alloca() : memref<4xf32> loc("fc1")
    %fc2 = memref.alloca() : memref<2xf32> loc("fc2")
    "snn.linear"(%in, %fc1_w, %fc1) {operandSegmentSizes = array<i32: 1, 1, 0, 1>, w_scale = 6 : i64} : (memref<6xf32>, memref<4x6xf32>, memref<4xf32>) -> () loc("fc1 (Linear 6 -> 4)")
    "snn.lif"(%fc1, %lif1_v, %lif1_spikes) {d_scale = 12 : i64, decay_float = 9.000000e-01 : f64, decay_int = 3686 : i64, leak_float = 0.000000e+00 : f64, leak_int = 0 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, product_bits = 64 : i64, reset_delay = 0 : i64, reset_float = 0.000000e+00 : f64, reset_int = 0 : i64, saturate = false, subtract = false, threshold_float = 1.000000e+00 : f64, threshold_int = 4096 : i64} : (memref<4xf32>, memref<4xf32>, memref<4xf32>) -> () loc("lif1 (LIF 4)")
    "snn.linear"(%lif1_spikes, %fc2_w, %fc2_b, %fc2) {operandSegmentSizes = array<i32: 1, 1, 1, 1>, w_scale = 5 : i64} : (memref<4xf32>, memref<2x4xf32>, memref<2xf32>, memref<2xf32>) -> () loc("fc2 (Affine 4 -> 2)")
    "snn.cubalif"(%fc2, %lif2_i, %lif2_v, %out, %lif2_decay) {cur_decay_float = 5.000000e-01 : f64, cur_decay_int = 2048 : i64, d_scale = 12 : i64, leak_float = -1.000000e-02 : f64, leak_int = -41 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 0, 0, 0>, product_bits = 64 : i64, reset_delay = 0 : i64, reset_float = 0.000000e+00 : f64, reset_int = 0 : i64, saturate = false, subtract = false, threshold_float = 5.000000e-01 : f64, threshold_int = 2048 : i64, vol_decay_float = 0.000000e+00 : f64, vol_decay_int = 0 : i64} : (memref<2xf32>, memref<2xf32>, memref<2xf32>, memref<2xf32>, memref<2xf32>) -> () loc("lif2 (CubaLIF 2)")
    return
  }
}
