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
    %cst = arith.constant 0.000000e+00 : f32
    linalg.fill ins(%cst : f32) outs(%fc1 : memref<4xf32>) loc("fc1 (Linear 6 -> 4)")
    linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%fc1_w, %in : memref<4x6xf32>, memref<6xf32>) outs(%fc1 : memref<4xf32>) {
    ^bb0(%in_1: f32, %in_2: f32, %out_3: f32):
      %0 = arith.mulf %in_1, %in_2 : f32
      %1 = arith.addf %out_3, %0 : f32
      linalg.yield %1 : f32
    } loc("fc1 (Linear 6 -> 4)")
    linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%fc1 : memref<4xf32>) outs(%lif1_v, %lif1_spikes : memref<4xf32>, memref<4xf32>) {
    ^bb0(%in_1: f32, %out_2: f32, %out_3: f32):
      %cst_4 = arith.constant 0.899999976 : f32
      %0 = arith.mulf %cst_4, %out_2 : f32
      %v = arith.addf %0, %in_1 : f32 loc("v")
      %cst_5 = arith.constant 1.000000e+00 : f32
      %fired = arith.cmpf ogt, %v, %cst_5 : f32 loc("fired")
      %cst_6 = arith.constant 0.000000e+00 : f32
      %1 = arith.select %fired, %cst_6, %v : f32
      %cst_7 = arith.constant 1.000000e+00 : f32
      %cst_8 = arith.constant 0.000000e+00 : f32
      %2 = arith.select %fired, %cst_7, %cst_8 : f32
      linalg.yield %1, %2 : f32, f32
    } loc("lif1 (LIF 4)")
    %cst_0 = arith.constant 0.000000e+00 : f32
    linalg.fill ins(%cst_0 : f32) outs(%fc2 : memref<2xf32>) loc("fc2 (Affine 4 -> 2)")
    linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%fc2_w, %lif1_spikes : memref<2x4xf32>, memref<4xf32>) outs(%fc2 : memref<2xf32>) {
    ^bb0(%in_1: f32, %in_2: f32, %out_3: f32):
      %0 = arith.mulf %in_1, %in_2 : f32
      %1 = arith.addf %out_3, %0 : f32
      linalg.yield %1 : f32
    } loc("fc2 (Affine 4 -> 2)")
    linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%fc2_b : memref<2xf32>) outs(%fc2 : memref<2xf32>) {
    ^bb0(%in_1: f32, %out_2: f32):
      %0 = arith.addf %out_2, %in_1 : f32
      linalg.yield %0 : f32
    } loc("fc2 (Affine 4 -> 2)")
    linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%fc2, %lif2_decay : memref<2xf32>, memref<2xf32>) outs(%lif2_i, %lif2_v, %out : memref<2xf32>, memref<2xf32>, memref<2xf32>) {
    ^bb0(%in_1: f32, %in_2: f32, %out_3: f32, %out_4: f32, %out_5: f32):
      %cst_6 = arith.constant 5.000000e-01 : f32
      %0 = arith.mulf %cst_6, %out_3 : f32
      %current = arith.addf %0, %in_1 : f32 loc("current")
      %1 = arith.mulf %in_2, %out_4 : f32
      %cst_7 = arith.constant -0.00999999977 : f32
      %2 = arith.addf %1, %current : f32
      %v = arith.addf %2, %cst_7 : f32 loc("v")
      %cst_8 = arith.constant 5.000000e-01 : f32
      %fired = arith.cmpf ogt, %v, %cst_8 : f32 loc("fired")
      %cst_9 = arith.constant 0.000000e+00 : f32
      %3 = arith.select %fired, %cst_9, %v : f32
      %cst_10 = arith.constant 1.000000e+00 : f32
      %cst_11 = arith.constant 0.000000e+00 : f32
      %4 = arith.select %fired, %cst_10, %cst_11 : f32
      linalg.yield %current, %3, %4 : f32, f32, f32
    } loc("lif2 (CubaLIF 2)")
    return
  }
}
