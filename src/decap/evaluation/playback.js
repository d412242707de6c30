(() => {
  const clips = JSON.parse(document.getElementById('clips').textContent);
  const style = getComputedStyle(document.documentElement);
  const colour = name => style.getPropertyValue(name).trim();
  const colours = ['#D55E00', '#0072B2', '#009E73', '#CC79A7'];
  for (const clip of clips) {
    const raw = atob(clip.points);
    const bytes = Uint8Array.from(raw, c => c.charCodeAt(0));
    clip.data = new Int16Array(bytes.buffer);
    clip.frames = clip.data.length / (3 * clip.count);
    clip.floor = lowest(clip);
  }
  const canvases = [...document.querySelectorAll('canvas[data-clip]')];
  const play = document.getElementById('play'), seek = document.getElementById('seek');
  const speed = document.getElementById('speed');
  const duration = Math.max(...clips.map(c => c.frames * c.dt));
  let time = 0, running = true, last = null, azimuth = -1.1;

  // Height of the ground under each frame: the lowest point of the second around it.
  function lowest(clip) {
    const least = new Float32Array(clip.frames), span = Math.round(0.5 / clip.dt);
    for (let f = 0; f < clip.frames; f++) {
      let z = 1e9;
      for (let p = 0; p < clip.count; p++) {
        z = Math.min(z, clip.data[(f * clip.count + p) * 3 + 2]);
      }
      least[f] = z / 1000;
    }
    return least.map((_, f) => Math.min(
      ...least.slice(Math.max(0, f - span), Math.min(clip.frames, f + span))));
  }

  function draw(canvas, clip) {
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const g = canvas.getContext('2d');
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    const frame = Math.min(clip.frames - 1, Math.floor(time / clip.dt));
    const at = p => {
      const i = (frame * clip.count + p) * 3;
      return [clip.data[i] / 1000, clip.data[i + 1] / 1000, clip.data[i + 2] / 1000];
    };
    const base = at(0), floor = clip.floor[frame];
    const scale = Math.min(height / 1.75, width / 1.5);
    const c = Math.cos(azimuth), s = Math.sin(azimuth), tilt = 0.2;
    const project = ([x, y, z]) => {
      const dx = x - base[0], dy = y - base[1];
      const side = -s * dx + c * dy, depth = c * dx + s * dy;
      return [width / 2 + scale * side,
        height * 0.9 - scale * ((z - floor) * Math.cos(tilt) + depth * Math.sin(tilt))];
    };
    const line = (a, b, ink, thick) => {
      g.strokeStyle = ink; g.lineWidth = thick; g.lineCap = 'round';
      g.beginPath(); g.moveTo(...project(a)); g.lineTo(...project(b)); g.stroke();
    };
    const x0 = Math.round(base[0] * 2) / 2, y0 = Math.round(base[1] * 2) / 2;
    for (let k = -4; k <= 4; k++) {
      const d = k / 2;
      line([x0 - 2, y0 + d, floor], [x0 + 2, y0 + d, floor], colour('--line'), 1);
      line([x0 + d, y0 - 2, floor], [x0 + d, y0 + 2, floor], colour('--line'), 1);
    }
    for (let p = 0; p < clip.count; p++) {
      const parent = clip.parents[p];
      if (parent < 0) continue;
      const index = clip.names.indexOf(clip.groups[p]);
      const ink = index < 0 ? colour('--bone') : colours[index % colours.length];
      line(at(parent), at(p), ink, Math.max(3, scale * 0.022));
    }
    const [command, actual] = clip.speeds[frame];
    canvas.nextElementSibling.textContent = clip.label + ' · '
      + (frame * clip.dt).toFixed(1) + ' s · forward ' + actual.toFixed(2)
      + ' of ' + command.toFixed(2) + ' m/s';
  }

  function render() {
    canvases.forEach(c => draw(c, clips[+c.dataset.clip]));
    seek.value = Math.round(1000 * time / duration);
  }
  function tick(now) {
    if (running && last !== null) {
      time = (time + (now - last) / 1000 * +speed.value) % duration;
      render();
    }
    last = now;
    requestAnimationFrame(tick);
  }
  play.onclick = () => {
    running = !running;
    play.textContent = running ? 'Pause' : 'Play';
  };
  seek.oninput = () => { time = duration * seek.value / 1000 * 0.9999; render(); };
  for (const canvas of canvases) {
    canvas.onpointerdown = e => canvas.setPointerCapture(e.pointerId);
    canvas.onpointermove = e => {
      if (e.buttons) { azimuth += e.movementX * 0.01; render(); }
    };
  }
  window.addEventListener('resize', render);
  if (matchMedia('(prefers-reduced-motion: reduce)').matches) play.click();
  render();
  requestAnimationFrame(tick);
})();
