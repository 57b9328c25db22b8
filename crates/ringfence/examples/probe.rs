//! temporary
use ringfence_engine::*; use ringfence_types::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).map(String::as_str) == Some("__jail-helper") { std::process::exit(ringfence_jail::helper::run(ringfence_engine::workers())); }
    let l = Limits{memory_bytes:512<<20,cpu_millicores:1000,timeout_ms:10000,processes:64,output_bytes:1<<20,disk_bytes:512<<20};
    let path = std::env::var_os("PATH").unwrap();
    let caps = Limits{memory_bytes:8192<<20,cpu_millicores:2000,timeout_ms:3600000,processes:1024,output_bytes:64<<20,disk_bytes:8192<<20};
    let s = EngineSettings{helper: std::env::current_exe().unwrap(), tier: std::env::var("TIER").map(|t|t.parse().unwrap()).unwrap_or(Tier::Full), state_dir:"/tmp/rf-state".into(), policy: PolicySettings{defaults:l,caps}, queue: QueueSettings{concurrency:4,waiting:10}, runtimes: RuntimeSettings{python:None,node:None,shell:None,search_path:std::env::split_paths(&path).collect(),extra_mounts:vec![]}};
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    rt.block_on(async {
        let e = Engine::open(s).unwrap();
        let n: usize = args.get(3).and_then(|n| n.parse().ok()).unwrap_or(1);
        let mut t = vec![]; let mut ph: Vec<Phases> = vec![];
        for _ in 0..n {
            let mut r = ExecuteRequest::new(args[1].parse().unwrap(), args[2].clone());
            if let Ok(x) = std::env::var("RAM") { r.limits.max_ram_mb = Some(x.parse().unwrap()); }
            if let Ok(x) = std::env::var("TMO") { r.limits.timeout_ms = Some(x.parse().unwrap()); }
            let b = std::time::Instant::now();
            let x = e.submit(Submission{request:r, stdin: Stdin::FromRequest, live:false, artifacts_to:None}).finish().await;
            t.push(b.elapsed().as_secs_f64()*1000.0);
            if n == 1 { match x { Ok(x) => println!("{}", serde_json::to_string_pretty(&x).unwrap()), Err(e) => println!("ERR {e}") } } else if let Err(e) = x { println!("ERR {e}") }
        }
        t.sort_by(f64::total_cmp);
        println!("p50 {:.2} min {:.2} max {:.2}", t[t.len()/2], t[0], t[t.len()-1]);
        if n>1 { let med=|f: fn(&Phases)->f64| { let mut v: Vec<f64>=ph.iter().map(f).collect(); v.sort_by(f64::total_cmp); v[v.len()/2] }; println!("start {:.2} run {:.2} finish {:.2}", med(|p|p.start_ms), med(|p|p.run_ms), med(|p|p.finish_ms)); }
        e.shutdown().await;
    });
}
