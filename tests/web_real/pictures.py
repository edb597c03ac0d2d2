"""Pictures of pages, small enough to be kept: 128 colours, as an indexed PNG."""

from __future__ import annotations

import base64
import struct
import zlib

COLOURS = 128
# The most frequent colours stay, every other becomes the nearest of them; what comes back is an index for each pixel.
INDEXED = """async ([picture, most]) => {
  const image = new Image(); image.src = 'data:image/png;base64,' + picture; await image.decode();
  const canvas = document.createElement('canvas'); canvas.width = image.width; canvas.height = image.height;
  const drawn = canvas.getContext('2d'); drawn.drawImage(image, 0, 0);
  const bytes = drawn.getImageData(0, 0, image.width, image.height).data;
  const counts = new Map(), colour = k => (bytes[k] << 16) | (bytes[k + 1] << 8) | bytes[k + 2];
  for (let k = 0; k < bytes.length; k += 4) counts.set(colour(k), (counts.get(colour(k)) || 0) + 1);
  const kept = [...counts].sort((a, b) => b[1] - a[1]).slice(0, most).map(each => each[0]);
  const far = (v, w) => ((v >> 16) - (w >> 16)) ** 2 + (((v >> 8) & 255) - ((w >> 8) & 255)) ** 2 + ((v & 255) - (w & 255)) ** 2;
  const place = new Map();
  for (const v of counts.keys()) place.set(v, kept.reduce((best, w, i) => far(v, w) < far(v, kept[best]) ? i : best, 0));
  let text = '';
  for (let k = 0; k < bytes.length; k += 4) text += String.fromCharCode(place.get(colour(k)));
  return [image.width, image.height, kept, btoa(text)];
}"""


def small(page, picture: bytes) -> bytes:
    """The picture with few colours; `page` is any page of a browser, which does the work."""
    wide, high, kept, text = page.evaluate(INDEXED, [base64.b64encode(picture).decode(), COLOURS])
    places = base64.b64decode(text)
    rows = b"".join(b"\0" + places[y * wide : (y + 1) * wide] for y in range(high))
    palette = b"".join(struct.pack(">I", colour)[1:] for colour in kept)
    head = struct.pack(">IIBBBBB", wide, high, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", head), (b"PLTE", palette), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
