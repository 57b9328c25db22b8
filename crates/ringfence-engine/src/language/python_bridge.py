# Values for and from other sessions, as JSON with tags for kinds that JSON lacks.
import base64, datetime, json, math
BYTES_MAX, DEPTH_MAX, SAFE = 16 << 20, 100, 1 << 53
def tagged(kind, value):
    return {'$type': kind, 'value': value}
def plain(value, path, depth):
    """Converts a value to types of JSON. An error names the path of a value that cannot be converted."""
    if depth > DEPTH_MAX:
        raise ValueError('%s: deeper than %d, or a cycle' % (path, DEPTH_MAX))
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        return value if -SAFE <= value <= SAFE else tagged('int', str(value))
    if kind is float:
        if math.isfinite(value):
            return value
        return tagged('float', 'NaN' if value != value else 'Infinity' if value > 0 else '-Infinity')
    if kind in (bytes, bytearray):
        return tagged('bytes', base64.b64encode(value).decode())
    library = str(kind.__module__).split('.')[0]
    if library == 'pandas' and kind.__name__ in ('NAType', 'NaTType'):
        return None
    if isinstance(value, datetime.datetime):
        return tagged('datetime', value.isoformat())
    if isinstance(value, datetime.date):
        return tagged('date', value.isoformat())
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError('%s: a key that is no text: %s' % (path, type(key).__name__))
        made = {str(key): plain(part, '%s.%s' % (path, key), depth + 1) for key, part in value.items()}
        return tagged('object', made) if '$type' in made else made
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(part, '%s[%d]' % (path, at), depth + 1) for at, part in enumerate(value)]
    if library == 'pandas' and kind.__name__ == 'DataFrame':
        return plain(value.to_dict('records'), path, depth)
    if library == 'numpy' and getattr(value, 'dtype', None) == 'datetime64[ns]':
        value = value.astype('datetime64[us]')  # a time in nanoseconds would become a plain number
    if library in ('numpy', 'pandas') and hasattr(value, 'tolist'):
        return plain(value.tolist(), path, depth)
    raise TypeError('%s: a value of type %s stays where it is' % (path, kind.__name__))
def encoded(value, path):
    text = json.dumps(plain(value, path, 0), allow_nan=False, separators=(',', ':'))
    if len(text) > BYTES_MAX:
        raise ValueError('%s: longer than %d MiB' % (path, BYTES_MAX >> 20))
    return text
def decoded(value, path):
    if isinstance(value, list):
        return [decoded(part, '%s[%d]' % (path, at)) for at, part in enumerate(value)]
    if not isinstance(value, dict):
        return value
    kind, inner = value.get('$type'), value.get('value')
    if '$type' not in value or kind == 'object' and isinstance(inner, dict):
        parts = value if '$type' not in value else inner
        return {key: decoded(part, '%s.%s' % (path, key)) for key, part in parts.items()}
    readers = {'int': int, 'float': float, 'bytes': base64.b64decode, 'date': datetime.date.fromisoformat,
               'datetime': lambda text: datetime.datetime.fromisoformat(text.replace('Z', '+00:00'))}
    if not isinstance(kind, str) or kind not in readers or not isinstance(inner, str):
        raise TypeError('%s: a $type and a value that no session gives' % path)
    try:
        return readers[kind](inner)
    except ValueError:
        raise TypeError('%s: a %s cannot be %.40r' % (path, kind, inner)) from None
